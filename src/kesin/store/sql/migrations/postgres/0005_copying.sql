-- A way in for jobs that come from another store as they are, with their whole history. It is open
-- for one queue, inside one transaction: a setting names the transaction it is meant for, so one that
-- was left behind opens nothing; a second one names the queue. Changing a job stays what it was: even
-- here it takes a declared move; and every event that comes must be of one. The conditions are
-- written out because calling a function of our own in each of them would cost every statement.

DROP TRIGGER guard_births ON {schema}.job;
CREATE TRIGGER guard_births AFTER INSERT ON {schema}.job
  REFERENCING NEW TABLE AS born FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_births();

DROP TRIGGER guard_prunes ON {schema}.job;
CREATE TRIGGER guard_prunes AFTER DELETE ON {schema}.job
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_prunes();

DROP TRIGGER guard_bodies ON {schema}.job_body;
CREATE TRIGGER guard_bodies AFTER INSERT ON {schema}.job_body
  REFERENCING NEW TABLE AS born FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_bodies();

DROP TRIGGER guard_event ON {schema}.event;
CREATE TRIGGER guard_event AFTER UPDATE OR DELETE ON {schema}.event
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_inner();
CREATE TRIGGER guard_event_birth AFTER INSERT ON {schema}.event
  FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_inner();

CREATE FUNCTION {schema}.guard_copies() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF EXISTS (SELECT 1 FROM came WHERE queue IS DISTINCT FROM current_setting('kesin.copied_queue', true)) THEN
    RAISE EXCEPTION 'kesin: only jobs of % are being copied', current_setting('kesin.copied_queue', true)
      USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_copies AFTER INSERT ON {schema}.job
  REFERENCING NEW TABLE AS came FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) = txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_copies();

CREATE FUNCTION {schema}.guard_copied_bodies() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
BEGIN
  IF (SELECT count(*) FROM came) <> (
    SELECT count(*) FROM came b
    JOIN {schema}.job j ON j.id = b.id
    JOIN (SELECT DISTINCT queue, move, to_state, holds_key FROM {schema}.declared) d
      ON d.queue = j.queue AND d.move = j.move AND d.to_state = j.state
    WHERE j.id = ANY(ARRAY(SELECT id FROM came)) AND j.queue = current_setting('kesin.copied_queue', true)
      AND j.queue IS NOT DISTINCT FROM b.queue AND j.tenant IS NOT DISTINCT FROM b.tenant
      AND j.keyed = (b.dedup_key IS NOT NULL)
      AND b.held_key IS NOT DISTINCT FROM CASE WHEN d.holds_key THEN b.dedup_key END)
  THEN
    RAISE EXCEPTION 'kesin: a copied body needs its job' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_copied_bodies AFTER INSERT ON {schema}.job_body
  REFERENCING NEW TABLE AS came FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) = txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_copied_bodies();

CREATE FUNCTION {schema}.guard_copied_events() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
BEGIN
  IF pg_trigger_depth() > 1 THEN RETURN NULL; END IF;  -- written by a job that moved
  IF (SELECT count(*) FROM came) <> (
    SELECT count(*) FROM came e
    JOIN {schema}.job j ON j.id = e.job_id
    JOIN {schema}.declared d ON d.queue = j.queue AND d.move = e.move
     AND d.from_state = e.from_state AND d.to_state = e.to_state
    WHERE j.id = ANY(ARRAY(SELECT job_id FROM came)) AND j.queue = current_setting('kesin.copied_queue', true)
      AND e.seq BETWEEN 1 AND j.seq AND e.mask & ~d.mask = 0)
  THEN
    RAISE EXCEPTION 'kesin: a copied event needs its job and a declared move'
      USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_copied_events AFTER INSERT ON {schema}.event
  REFERENCING NEW TABLE AS came FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) = txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_copied_events();

-- A copy that is replaced, or that the original is gone of, leaves no count.
CREATE FUNCTION {schema}.guard_dropped_copies() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
BEGIN
  IF EXISTS (SELECT 1 FROM gone WHERE queue IS DISTINCT FROM current_setting('kesin.copied_queue', true)) THEN
    RAISE EXCEPTION 'kesin: only jobs of % are being copied', current_setting('kesin.copied_queue', true)
      USING ERRCODE = 'check_violation';
  END IF;
  DELETE FROM {schema}.event WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.note WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.job_body WHERE id = ANY(ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_dropped_copies AFTER DELETE ON {schema}.job
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) = txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_dropped_copies();

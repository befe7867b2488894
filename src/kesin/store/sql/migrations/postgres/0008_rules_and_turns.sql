-- What upgrades, turns between tenants and the engine's next features stand on; and the guard closed
-- where a prompt could still pass it: counters, notes, declarations, and jobs finished a moment ago.

ALTER TABLE {schema}.job ADD COLUMN priority smallint NOT NULL DEFAULT 0
  CONSTRAINT job_priority CHECK (priority BETWEEN -1 AND 2);
ALTER TABLE {schema}.event ADD COLUMN priority smallint NOT NULL DEFAULT 0;
ALTER TABLE {schema}.job_body ADD COLUMN once boolean NOT NULL DEFAULT FALSE;  -- its key is held for good
ALTER TABLE {schema}.declared
  ADD COLUMN slots      smallint NOT NULL DEFAULT 0,  -- jobs that may be in to_state at once, 0: any
  ADD COLUMN slots_per  smallint NOT NULL DEFAULT 0,  -- 0: in the queue, 1: of a tenant
  ADD COLUMN min_age_us bigint   NOT NULL DEFAULT 0,  -- of a prune: since the job finished
  ADD COLUMN retired_at bigint;                       -- to_state was retired: no job may enter it
UPDATE {schema}.declared SET slots = 1 WHERE slot IS NOT NULL;

DROP INDEX {schema}.job_ready;
CREATE INDEX job_ready ON {schema}.job (queue, tenant, priority, run_at, id) WHERE phase = 0;

-- Every version of a queue's lifecycle, whole. Version 0 is what was declared before versions were
-- kept: names of states, stamps and flags, and the edges.
CREATE TABLE {schema}.rules (
  queue        text COLLATE "C" NOT NULL,
  version      integer  NOT NULL,
  fingerprint  text COLLATE "C" NOT NULL,
  definition   text     NOT NULL,
  virtual_time boolean  NOT NULL,  -- its times are injected, as by tests and simulations
  declared_at  bigint   NOT NULL,
  PRIMARY KEY (queue, version)
);
INSERT INTO {schema}.rules
SELECT l.queue, 0, '', (l.definition::jsonb || jsonb_build_object('edges', coalesce((
    SELECT jsonb_agg(jsonb_build_array(d.move, d.from_state, d.to_state))
    FROM {schema}.declared d WHERE d.queue = l.queue), '[]')))::text, FALSE, l.declared_at
FROM {schema}.lifecycle l;

CREATE TABLE {schema}.state (
  queue      text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  phase      smallint NOT NULL,  -- of an unclaimed job in it
  success    boolean  NOT NULL,
  waits      boolean  NOT NULL DEFAULT FALSE,  -- at rest, but only until its parents are
  retired_at bigint,
  PRIMARY KEY (queue, name)
);

CREATE TABLE {schema}.parent (
  child  uuid    NOT NULL,
  parent uuid    NOT NULL,
  done   boolean NOT NULL DEFAULT FALSE,
  PRIMARY KEY (child, parent)
);
CREATE INDEX parent_of ON {schema}.parent (parent);
CREATE INDEX parent_undone ON {schema}.parent (child) WHERE NOT done;

CREATE TABLE {schema}.schedule (
  queue      text COLLATE "C" NOT NULL,
  name       text COLLATE "C" NOT NULL,
  definition text   NOT NULL,
  next_at    bigint NOT NULL,
  PRIMARY KEY (queue, name)
);

CREATE TABLE {schema}.meter (
  queue   text COLLATE "C" NOT NULL,
  tenant  text COLLATE "C" NOT NULL,
  move    text COLLATE "C" NOT NULL,
  free_at bigint NOT NULL,
  PRIMARY KEY (queue, tenant, move)
);

CREATE FUNCTION {schema}.now_us() RETURNS bigint LANGUAGE sql STABLE AS
  $$ SELECT (extract(epoch FROM now()) * 1000000)::bigint $$;
CREATE FUNCTION {schema}.virtual_time(named text) RETURNS boolean LANGUAGE sql STABLE AS
  $$ SELECT EXISTS (SELECT 1 FROM {schema}.rules WHERE queue = named AND virtual_time) $$;

CREATE OR REPLACE FUNCTION {schema}.guard_births() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
DECLARE
  total   bigint;
  latest  bigint;
  written bigint;
BEGIN
  SELECT count(*), max(moved_at) INTO total, latest FROM born;
  IF total = 0 THEN RETURN NULL; END IF;
  IF latest > {schema}.now_us() + 86400000000 AND EXISTS (
    SELECT 1 FROM born n
    WHERE n.moved_at > {schema}.now_us() + 86400000000 AND NOT {schema}.virtual_time(n.queue))
  THEN
    RAISE EXCEPTION 'kesin: a move more than a day ahead of the database''s clock'
      USING ERRCODE = 'check_violation';
  END IF;
  WITH ok AS MATERIALIZED (
    SELECT n.*, d.mask
    FROM born n
    JOIN {schema}.declared d
      ON d.queue = n.queue AND d.move = n.move AND d.from_state = '' AND d.to_state = n.state
    WHERE d.retired_at IS NULL AND n.priority = 0 AND n.seq = 1 AND n.claim_seq = 0 AND n.payload_seq = 1 AND n.phase = d.phase
      AND n.attempt_count = 0 AND n.attempt_base = 0 AND n.return_count = 0 AND n.retry_count = 0
      AND n.moved_at = n.created_at AND n.flags = 0 AND n.new_payload IS NULL
      AND n.slot IS NOT DISTINCT FROM d.slot AND n.result IS NULL AND n.timer_at IS NULL
      AND n.error_code IS NULL AND n.error_category IS NULL AND n.error_message IS NULL
      AND n.finished_at IS NULL
      AND (d.mask & 128 <> 0 OR n.stamp_1 IS NULL) AND (d.mask & 256 <> 0 OR n.stamp_2 IS NULL)
      AND (d.mask & 512 <> 0 OR n.stamp_3 IS NULL) AND (d.mask & 1024 <> 0 OR n.stamp_4 IS NULL)
  ), events AS (
    INSERT INTO {schema}.event (job_id, seq, at, move, from_state, to_state, phase, claim, actor,
      attempt, attempt_base, return_count, max_attempts, retry_count, flags, mask, note, run_at,
      stamp_1, stamp_2, stamp_3, stamp_4)
    SELECT id, 1, created_at, move, '', state, phase, -1, actor, 0, 0, 0, max_attempts, 0, 0, mask,
      note, run_at, stamp_1, stamp_2, stamp_3, stamp_4
    FROM ok
  ), flows AS (
    INSERT INTO {schema}.flow (queue, tenant, move, from_state, to_state, n, at)
    SELECT queue, tenant, move, '', state, count(*), max(created_at) FROM ok GROUP BY 1, 2, 3, 5
  )
  SELECT count(*) INTO written FROM ok;
  IF written <> total THEN
    RAISE EXCEPTION 'kesin: a job is created only by its declared enqueue'
      USING ERRCODE = 'check_violation';
  END IF;
  PERFORM pg_notify('{schema}', queue) FROM (SELECT DISTINCT queue FROM born) q;
  RETURN NULL;
END $guard$;

CREATE OR REPLACE FUNCTION {schema}.guard_moves() RETURNS trigger
LANGUAGE plpgsql
SET enable_nestloop = off SET enable_seqscan = off SET enable_mergejoin = off AS $guard$
DECLARE
  edge    {schema}.declared;
  total   bigint;
  latest  bigint;
  moved   bigint;
  written bigint := 0;
  renewed bigint;
  keys    boolean := FALSE;
  bodies  boolean := FALSE;
  ready   boolean := FALSE;
BEGIN
  SELECT count(*), max(moved_at) INTO total, latest FROM fresh;
  IF total = 0 THEN RETURN NULL; END IF;
  IF latest > {schema}.now_us() + 86400000000 AND EXISTS (
    SELECT 1 FROM fresh n
    WHERE n.moved_at > {schema}.now_us() + 86400000000 AND NOT {schema}.virtual_time(n.queue))
  THEN
    RAISE EXCEPTION 'kesin: a move more than a day ahead of the database''s clock'
      USING ERRCODE = 'check_violation';
  END IF;
  FOR edge IN
    SELECT d.* FROM {schema}.declared d
    JOIN (SELECT DISTINCT queue, move, state FROM fresh) n
      ON d.queue = n.queue AND d.move = n.move AND d.to_state = n.state
    WHERE d.to_state <> '' AND d.retired_at IS NULL AND d.from_state IN (SELECT state FROM stale)
  LOOP
    INSERT INTO {schema}.event (job_id, seq, at, move, from_state, to_state, phase, claim, actor,
      worker, attempt, attempt_base, return_count, max_attempts, retry_count, flags, mask,
      error_code, error_category, error_message, note, run_at, timer_at, result, payload,
      old_payload, finished_at, stamp_1, stamp_2, stamp_3, stamp_4, priority)
    SELECT n.id, n.seq, n.moved_at, n.move, edge.from_state, n.state, n.phase, edge.claim, n.actor,
      n.worker, n.attempt_count, n.attempt_base, n.return_count, n.max_attempts, n.retry_count,
      n.flags, edge.mask,
      CASE WHEN edge.mask & 1 <> 0 THEN n.error_code END,
      CASE WHEN edge.mask & 1 <> 0 THEN n.error_category END,
      CASE WHEN edge.mask & 1 <> 0 THEN n.error_message END, n.note,
      CASE WHEN edge.mask & 2 <> 0 THEN n.run_at END,
      CASE WHEN edge.mask & 4 <> 0 THEN n.timer_at END,
      CASE WHEN edge.mask & 8 <> 0 THEN n.result END, n.new_payload,
      CASE WHEN edge.mask & 32 <> 0
        THEN (SELECT b.payload FROM {schema}.job_body b WHERE b.id = n.id) END,
      CASE WHEN edge.mask & 64 <> 0 THEN n.finished_at END,
      CASE WHEN edge.mask & 128 <> 0 THEN n.stamp_1 END,
      CASE WHEN edge.mask & 256 <> 0 THEN n.stamp_2 END,
      CASE WHEN edge.mask & 512 <> 0 THEN n.stamp_3 END,
      CASE WHEN edge.mask & 1024 <> 0 THEN n.stamp_4 END, n.priority
    FROM fresh n
    JOIN stale o ON o.id = n.id
    WHERE n.queue = edge.queue AND n.move = edge.move AND n.state = edge.to_state
      AND o.state = edge.from_state AND n.seq - o.seq = 1
      AND n.queue IS NOT DISTINCT FROM o.queue AND n.tenant IS NOT DISTINCT FROM o.tenant
      AND n.created_at IS NOT DISTINCT FROM o.created_at AND n.salt IS NOT DISTINCT FROM o.salt
      AND n.keyed IS NOT DISTINCT FROM o.keyed AND n.moved_at >= o.moved_at
      AND n.attempt_count - o.attempt_count = edge.counts
      AND n.attempt_base = CASE edge.base WHEN 0 THEN o.attempt_base WHEN 1 THEN o.attempt_base + 1
                                          ELSE o.attempt_count END
      AND n.return_count = CASE edge.base WHEN 2 THEN 0 ELSE o.return_count + edge.returns END
      AND n.retry_count - o.retry_count = edge.retries
      AND (edge.base = 2 OR n.max_attempts = o.max_attempts)
      AND n.slot IS NOT DISTINCT FROM edge.slot
      AND CASE edge.claim
        WHEN 1 THEN o.phase <> 1 AND n.phase = 1 AND n.claim_seq = n.seq
                AND n.claimed_at = n.moved_at
        WHEN 0 THEN n.phase = edge.phase AND n.claim_seq = o.claim_seq
        ELSE n.claim_seq = o.claim_seq AND n.worker IS NOT DISTINCT FROM o.worker
         AND n.claimed_at IS NOT DISTINCT FROM o.claimed_at
         AND n.phase = CASE o.phase WHEN 1 THEN 1 ELSE edge.phase END
        END
      AND (edge.mask & 1 <> 0 OR (n.error_code IS NOT DISTINCT FROM o.error_code
                              AND n.error_category IS NOT DISTINCT FROM o.error_category
                              AND n.error_message IS NOT DISTINCT FROM o.error_message))
      AND (edge.mask & 2 <> 0 OR n.run_at IS NOT DISTINCT FROM o.run_at)
      AND (edge.mask & 4 <> 0 OR n.timer_at IS NOT DISTINCT FROM o.timer_at)
      AND (edge.mask & 8 <> 0 OR n.result IS NOT DISTINCT FROM o.result)
      AND (edge.mask & 16 <> 0 OR n.flags = o.flags)
      AND ((edge.mask & 32 <> 0) = (n.new_payload IS NOT NULL))
      AND n.payload_seq = CASE WHEN edge.mask & 32 <> 0 THEN n.seq ELSE o.payload_seq END
      AND (edge.mask & 64 <> 0 OR n.finished_at IS NOT DISTINCT FROM o.finished_at)
      AND (edge.mask & 128 <> 0 OR n.stamp_1 IS NOT DISTINCT FROM o.stamp_1)
      AND (edge.mask & 256 <> 0 OR n.stamp_2 IS NOT DISTINCT FROM o.stamp_2)
      AND (edge.mask & 512 <> 0 OR n.stamp_3 IS NOT DISTINCT FROM o.stamp_3)
      AND (edge.mask & 1024 <> 0 OR n.stamp_4 IS NOT DISTINCT FROM o.stamp_4)
      AND (edge.mask & 8192 <> 0 OR n.priority = o.priority);
    GET DIAGNOSTICS moved = ROW_COUNT;
    CONTINUE WHEN moved = 0;
    written := written + moved;
    keys := keys OR (edge.mask & 6144 <> 0 AND EXISTS (SELECT 1 FROM fresh WHERE keyed));
    bodies := bodies OR edge.mask & 32 <> 0;
    ready := ready OR (edge.phase = 0 AND edge.claim <> 1);
    INSERT INTO {schema}.flow (queue, tenant, move, from_state, to_state, n, at)
    SELECT edge.queue, n.tenant, edge.move, edge.from_state, edge.to_state, count(*),
      max(n.moved_at)
    FROM fresh n
    WHERE moved = total OR (n.queue = edge.queue AND n.move = edge.move
      AND n.state = edge.to_state
      AND (n.id, n.seq - 1) IN (SELECT id, seq FROM stale WHERE state = edge.from_state))
    GROUP BY n.tenant;
  END LOOP;
  IF written <> total THEN
    SELECT count(*) INTO renewed
    FROM fresh n JOIN stale o ON o.id = n.id
    WHERE n.phase = 1
      AND (n.created_at, n.moved_at, n.run_at, n.timer_at, n.claimed_at, n.finished_at, n.stamp_1,
           n.stamp_2, n.stamp_3, n.stamp_4, n.seq, n.claim_seq, n.payload_seq, n.attempt_count,
           n.attempt_base, n.return_count, n.max_attempts, n.retry_count, n.salt, n.flags, n.phase,
           n.keyed, n.queue, n.tenant, n.state, n.move, n.actor, n.worker, n.slot, n.error_code,
           n.error_category, n.error_message, n.note, n.result, n.new_payload, n.priority)
      IS NOT DISTINCT FROM
          (o.created_at, o.moved_at, o.run_at, o.timer_at, o.claimed_at, o.finished_at, o.stamp_1,
           o.stamp_2, o.stamp_3, o.stamp_4, o.seq, o.claim_seq, o.payload_seq, o.attempt_count,
           o.attempt_base, o.return_count, o.max_attempts, o.retry_count, o.salt, o.flags, o.phase,
           o.keyed, o.queue, o.tenant, o.state, o.move, o.actor, o.worker, o.slot, o.error_code,
           o.error_category, o.error_message, o.note, o.result, o.new_payload, o.priority);
    IF written + renewed <> total THEN
      RAISE EXCEPTION 'kesin: a job changes only by a declared move'
        USING ERRCODE = 'check_violation',
              HINT = 'Use kesin jobs act, or the queue''s API.';
    END IF;
  END IF;
  IF keys THEN
    UPDATE {schema}.job_body b
       SET held_key = CASE WHEN d.holds_key THEN b.dedup_key END
      FROM fresh n
      JOIN stale o ON o.id = n.id
      JOIN {schema}.declared d ON d.queue = n.queue AND d.move = n.move
       AND d.from_state = o.state AND d.to_state = n.state AND d.mask & 6144 <> 0
     WHERE b.id = n.id AND b.id = ANY(ARRAY(SELECT id FROM fresh WHERE keyed));
  END IF;
  IF bodies THEN
    UPDATE {schema}.job_body b SET payload = n.new_payload
      FROM fresh n
     WHERE b.id = n.id AND b.id = ANY(ARRAY(SELECT id FROM fresh)) AND n.new_payload IS NOT NULL;
  END IF;
  IF ready THEN
    PERFORM pg_notify('{schema}', queue)
    FROM (SELECT DISTINCT n.queue FROM fresh n JOIN stale o ON o.id = n.id
          WHERE n.phase = 0 AND o.phase <> 1 AND n.run_at <= n.moved_at) q;
  END IF;
  RETURN NULL;
END $guard$;

CREATE OR REPLACE FUNCTION {schema}.guard_prunes() RETURNS trigger
LANGUAGE plpgsql
SET enable_nestloop = off SET enable_seqscan = off SET enable_sort = on AS $guard$
DECLARE
  total  bigint;
  pruned bigint;
BEGIN
  SELECT count(*) INTO total FROM gone;
  IF total = 0 THEN RETURN NULL; END IF;
  WITH ok AS MATERIALIZED (
    SELECT o.id, o.queue, o.tenant, o.state, o.moved_at, d.move
    FROM gone o
    JOIN (
      SELECT DISTINCT ON (queue, from_state) queue, from_state, move, min_age_us,
        {schema}.virtual_time(queue) AS virtual_time
      FROM {schema}.declared WHERE to_state = '' ORDER BY queue, from_state, min_age_us, move
    ) d ON d.queue = o.queue AND d.from_state = o.state
    WHERE o.finished_at <= {schema}.now_us() - d.min_age_us
       OR (o.finished_at IS NOT NULL AND d.virtual_time)
  ), flows AS (
    INSERT INTO {schema}.flow (queue, tenant, move, from_state, to_state, n, at)
    SELECT queue, tenant, move, state, '', count(*), max(moved_at) FROM ok GROUP BY 1, 2, 3, 4
  )
  SELECT count(*) INTO pruned FROM ok;
  IF pruned <> total THEN
    RAISE EXCEPTION 'kesin: only jobs finished long enough ago may be pruned' USING ERRCODE = 'check_violation';
  END IF;
  DELETE FROM {schema}.event WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.note WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.job_body WHERE id = ANY(ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $guard$;

-- Counters are written by the triggers above, or merged through the view below.
CREATE TRIGGER guard_flow AFTER INSERT OR UPDATE OR DELETE ON {schema}.flow
  FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0
    AND current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_inner();

CREATE VIEW {schema}.compaction AS SELECT ''::text AS queue, 0::bigint AS merged WHERE FALSE;
CREATE FUNCTION {schema}.compact_flow() RETURNS trigger LANGUAGE plpgsql AS $compact$
BEGIN
  WITH old AS MATERIALIZED (
    SELECT ctid FROM {schema}.flow WHERE queue = NEW.queue LIMIT 20000 FOR UPDATE SKIP LOCKED
  ), gone AS (
    DELETE FROM {schema}.flow WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
    RETURNING queue, tenant, move, from_state, to_state, n, at
  ), kept AS (
    INSERT INTO {schema}.flow
    SELECT queue, tenant, move, from_state, to_state, sum(n), max(at)
    FROM gone GROUP BY 1, 2, 3, 4, 5
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept) INTO NEW.merged;
  RETURN NEW;
END $compact$;
CREATE TRIGGER compact_flow INSTEAD OF INSERT ON {schema}.compaction
  FOR EACH ROW EXECUTE FUNCTION {schema}.compact_flow();

-- A note goes with its job and never changes.
CREATE TRIGGER guard_note AFTER UPDATE OR DELETE ON {schema}.note
  FOR EACH STATEMENT WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION {schema}.guard_inner();

-- Declarations only grow. What may change leaves a note, as a new version does.
CREATE FUNCTION {schema}.guard_declared() RETURNS trigger LANGUAGE plpgsql AS $guard$
DECLARE
  kept jsonb := to_jsonb(NEW) - ARRAY['mask', 'min_age_us', 'retired_at'];
BEGIN
  IF kept IS DISTINCT FROM to_jsonb(OLD) - ARRAY['mask', 'min_age_us', 'retired_at']
     OR NEW.mask & OLD.mask <> OLD.mask
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS DISTINCT FROM OLD.retired_at)
  THEN
    RAISE EXCEPTION 'kesin: a declared move is never changed' USING ERRCODE = 'check_violation';
  END IF;
  IF NEW.min_age_us <> OLD.min_age_us THEN
    INSERT INTO {schema}.note (queue, tenant, at, kind, actor, details)
    VALUES (NEW.queue, '', {schema}.now_us(), 'declared', current_user, jsonb_build_object(
      'move', NEW.move, 'from', NEW.from_state, 'min_age_us', NEW.min_age_us)::text);
  END IF;
  RETURN NULL;
END $guard$;
CREATE TRIGGER guard_declared AFTER UPDATE ON {schema}.declared
  FOR EACH ROW EXECUTE FUNCTION {schema}.guard_declared();

CREATE FUNCTION {schema}.guard_state() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF to_jsonb(NEW) - 'retired_at' IS DISTINCT FROM to_jsonb(OLD) - 'retired_at'
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS DISTINCT FROM OLD.retired_at)
  THEN
    RAISE EXCEPTION 'kesin: a declared state is never changed' USING ERRCODE = 'check_violation';
  END IF;
  IF NEW.retired_at IS DISTINCT FROM OLD.retired_at THEN
    INSERT INTO {schema}.note (queue, tenant, at, kind, actor, details)
    VALUES (NEW.queue, '', {schema}.now_us(), 'declared', current_user, jsonb_build_object(
      'state', NEW.name, 'retired_at', NEW.retired_at)::text);
  END IF;
  RETURN NULL;
END $guard$;
CREATE TRIGGER guard_state AFTER UPDATE ON {schema}.state
  FOR EACH ROW EXECUTE FUNCTION {schema}.guard_state();

CREATE FUNCTION {schema}.note_rules() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  INSERT INTO {schema}.note (queue, tenant, at, kind, actor, details)
  VALUES (NEW.queue, '', {schema}.now_us(), 'declared', current_user, jsonb_build_object(
    'version', NEW.version, 'fingerprint', NEW.fingerprint, 'virtual_time', NEW.virtual_time)::text);
  RETURN NULL;
END $guard$;
CREATE TRIGGER note_rules AFTER INSERT ON {schema}.rules
  FOR EACH ROW EXECUTE FUNCTION {schema}.note_rules();

CREATE FUNCTION {schema}.guard_kept() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  RAISE EXCEPTION 'kesin: % on % is not allowed: declarations only grow', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'check_violation';
END $guard$;
CREATE TRIGGER guard_kept BEFORE DELETE OR TRUNCATE ON {schema}.declared
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_kept();
CREATE TRIGGER guard_kept BEFORE DELETE OR TRUNCATE ON {schema}.state
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_kept();
CREATE TRIGGER guard_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.rules
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_kept();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.note
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.flow
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();

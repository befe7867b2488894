-- Slots with numbers, jobs that come after others, and how far a job is.

-- The number of a slot: the first of a queue is spelled as its state, any other state/tenant/number,
-- with an empty tenant where the slots are the queue's. NULL for any other spelling.
CREATE FUNCTION {schema}.slot_number(slot text, state text, tenant text) RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $slot$
  SELECT CASE
    WHEN tenant = '' AND slot = state THEN 1
    WHEN n.digits ~ '^[1-9][0-9]*$' AND length(n.digits) < 6 AND (tenant <> '' OR n.digits <> '1')
      AND left(slot, -length(n.digits)) = state || '/' || tenant || '/' THEN n.digits::integer
  END
  FROM (SELECT substring(slot FROM '[0-9]*$') AS digits) n
$slot$;

ALTER TABLE {schema}.parent
  ADD COLUMN queue text COLLATE "C" NOT NULL,          -- of the child
  ADD COLUMN news  boolean NOT NULL DEFAULT FALSE;     -- the parent came to rest: look at the child
CREATE INDEX parent_news ON {schema}.parent (queue, child) WHERE news;

-- How far a job is, as its handler last said: beside the audit, for the claim it was said under.
CREATE TABLE {schema}.progress (
  job_id    uuid    NOT NULL PRIMARY KEY,
  claim_seq integer NOT NULL,
  at        bigint  NOT NULL,
  fraction  double precision,
  message   text
);

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
  rests   boolean := FALSE;
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
      AND CASE
        WHEN edge.slot IS NULL THEN n.slot IS NULL
        WHEN edge.from_state = edge.to_state THEN n.slot IS NOT DISTINCT FROM o.slot
        ELSE coalesce({schema}.slot_number(n.slot, edge.slot,
          CASE edge.slots_per WHEN 0 THEN '' ELSE n.tenant END) BETWEEN 1 AND edge.slots, FALSE)
        END
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
    rests := rests OR edge.phase IN (2, 3);
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
     WHERE b.id = n.id AND b.id = ANY(ARRAY(SELECT id FROM fresh WHERE keyed)) AND NOT b.once;
  END IF;
  IF bodies THEN
    UPDATE {schema}.job_body b SET payload = n.new_payload
      FROM fresh n
     WHERE b.id = n.id AND b.id = ANY(ARRAY(SELECT id FROM fresh)) AND n.new_payload IS NOT NULL;
  END IF;
  IF rests AND EXISTS (SELECT 1 FROM {schema}.parent) THEN
    WITH heard AS (
      UPDATE {schema}.parent p SET done = p.done OR s.success, news = TRUE
        FROM fresh n
        JOIN {schema}.state s ON s.queue = n.queue AND s.name = n.state
       WHERE p.parent = n.id AND n.phase IN (2, 3) AND NOT s.waits
         AND p.parent = ANY(ARRAY(SELECT id FROM fresh WHERE phase IN (2, 3)))
      RETURNING p.queue
    )
    SELECT count(pg_notify('{schema}', q.queue)) INTO moved FROM (SELECT DISTINCT queue FROM heard) q;
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
  IF EXISTS (SELECT 1 FROM {schema}.parent) THEN
    IF EXISTS (
      SELECT 1 FROM {schema}.parent p
      JOIN {schema}.job c ON c.id = p.child
      JOIN {schema}.state s ON s.queue = c.queue AND s.name = c.state
      WHERE p.parent = ANY(ARRAY(SELECT id FROM gone)) AND (c.phase NOT IN (2, 3) OR s.waits)
        AND c.id = ANY(ARRAY(
          SELECT child FROM {schema}.parent WHERE parent = ANY(ARRAY(SELECT id FROM gone)))))
    THEN
      RAISE EXCEPTION 'kesin: a job that another waits for may not be pruned'
        USING ERRCODE = 'check_violation';
    END IF;
    DELETE FROM {schema}.parent WHERE child = ANY(ARRAY(SELECT id FROM gone));
    DELETE FROM {schema}.parent WHERE parent = ANY(ARRAY(SELECT id FROM gone));
  END IF;
  DELETE FROM {schema}.progress WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.event WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.note WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.job_body WHERE id = ANY(ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $guard$;

CREATE OR REPLACE FUNCTION {schema}.guard_dropped_copies() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
BEGIN
  IF EXISTS (SELECT 1 FROM gone WHERE queue IS DISTINCT FROM current_setting('kesin.copied_queue', true)) THEN
    RAISE EXCEPTION 'kesin: only jobs of % are being copied', current_setting('kesin.copied_queue', true)
      USING ERRCODE = 'check_violation';
  END IF;
  DELETE FROM {schema}.parent WHERE child = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.progress WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.event WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.note WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.job_body WHERE id = ANY(ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $guard$;

-- A job's parents are written with it, and marked by those that come to rest.
CREATE FUNCTION {schema}.guard_parents() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF EXISTS (
    SELECT 1 FROM came p
    LEFT JOIN {schema}.job c ON c.id = p.child AND c.queue = p.queue
    LEFT JOIN {schema}.state s ON s.queue = c.queue AND s.name = c.state
    WHERE p.child = p.parent OR s.waits IS NOT TRUE OR c.seq <> 1)
  THEN
    RAISE EXCEPTION 'kesin: parents are written with the job that waits for them'
      USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;
CREATE TRIGGER guard_parents AFTER INSERT ON {schema}.parent
  REFERENCING NEW TABLE AS came FOR EACH STATEMENT
  WHEN (current_setting('kesin.copying', true) IS DISTINCT FROM txid_current()::text)
  EXECUTE FUNCTION {schema}.guard_parents();
CREATE FUNCTION {schema}.guard_heard() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF pg_trigger_depth() < 2 AND EXISTS (
    SELECT 1 FROM fresh n
    WHERE n.news OR (n.child, n.parent, n.queue, n.done) NOT IN (
      SELECT o.child, o.parent, o.queue, o.done FROM stale o))
  THEN
    RAISE EXCEPTION 'kesin: a parent is marked only by its own moves'
      USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;
CREATE TRIGGER guard_heard AFTER UPDATE ON {schema}.parent
  REFERENCING OLD TABLE AS stale NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_heard();
CREATE TRIGGER guard_parents_end AFTER DELETE ON {schema}.parent
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_inner();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.parent
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();

-- How many slots a state has may change; whose they are may not.
CREATE OR REPLACE FUNCTION {schema}.guard_declared() RETURNS trigger LANGUAGE plpgsql AS $guard$
DECLARE
  free text[] := ARRAY['mask', 'min_age_us', 'retired_at', 'slots'];
BEGIN
  IF to_jsonb(NEW) - free IS DISTINCT FROM to_jsonb(OLD) - free
     OR NEW.mask & OLD.mask <> OLD.mask OR (NEW.slots = 0) <> (OLD.slots = 0)
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS DISTINCT FROM OLD.retired_at)
  THEN
    RAISE EXCEPTION 'kesin: a declared move is never changed' USING ERRCODE = 'check_violation';
  END IF;
  IF (NEW.min_age_us, NEW.slots) <> (OLD.min_age_us, OLD.slots) THEN
    INSERT INTO {schema}.note (queue, tenant, at, kind, actor, details)
    VALUES (NEW.queue, '', {schema}.now_us(), 'declared', current_user, jsonb_build_object(
      'move', NEW.move, 'from', NEW.from_state, 'min_age_us', NEW.min_age_us,
      'slots', NEW.slots)::text);
  END IF;
  RETURN NULL;
END $guard$;

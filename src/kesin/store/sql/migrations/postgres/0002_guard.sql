-- The guard: every change of a job is checked against the declared moves and leaves its event and
-- its count in the same statement. Statement triggers, because row triggers cost four times as
-- much. Rows are paired by id and by nothing else: of any second equality the planner may make a
-- join of its own, and pair every row with every other. Their plans are cached from the session's first batch, maybe of one row, maybe on an empty
-- table: with nested loops and sequential scans off, the cached plan is right for the next one too.

CREATE FUNCTION {schema}.guard_births() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
DECLARE
  total   bigint;
  written bigint;
BEGIN
  SELECT count(*) INTO total FROM born;
  IF total = 0 THEN RETURN NULL; END IF;
  WITH ok AS MATERIALIZED (
    SELECT n.*, d.mask
    FROM born n
    JOIN {schema}.declared d
      ON d.queue = n.queue AND d.move = n.move AND d.from_state = '' AND d.to_state = n.state
    WHERE n.seq = 1 AND n.claim_seq = 0 AND n.payload_seq = 1 AND n.phase = d.phase
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
    RAISE EXCEPTION 'kesin: a job may only be born by its declared enqueue'
      USING ERRCODE = 'check_violation';
  END IF;
  PERFORM pg_notify('{schema}', queue) FROM (SELECT DISTINCT queue FROM born) q;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_births AFTER INSERT ON {schema}.job
  REFERENCING NEW TABLE AS born FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_births();

CREATE FUNCTION {schema}.guard_moves() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
DECLARE
  total   bigint;
  written bigint;
  renewed bigint;
  keys    boolean;
  bodies  boolean;
  ready   boolean;
BEGIN
  SELECT count(*) INTO total FROM fresh;
  IF total = 0 THEN RETURN NULL; END IF;
  WITH ok AS MATERIALIZED (
    SELECT n.*, o.state AS from_state, o.phase AS from_phase,
           d.mask AS mask, d.claim AS claim
    FROM fresh n
    JOIN stale o ON o.id = n.id
    JOIN {schema}.declared d
      ON d.queue = n.queue AND d.move = n.move AND d.from_state = o.state AND d.to_state = n.state
    WHERE n.seq - o.seq = 1 AND d.to_state <> ''
      AND n.queue IS NOT DISTINCT FROM o.queue AND n.tenant IS NOT DISTINCT FROM o.tenant
      AND n.created_at IS NOT DISTINCT FROM o.created_at AND n.salt IS NOT DISTINCT FROM o.salt
      AND n.keyed IS NOT DISTINCT FROM o.keyed AND n.moved_at >= o.moved_at
      AND n.attempt_count - o.attempt_count = d.counts
      AND n.attempt_base = CASE d.base WHEN 0 THEN o.attempt_base WHEN 1 THEN o.attempt_base + 1
                                       ELSE o.attempt_count END
      AND n.return_count = CASE d.base WHEN 2 THEN 0 ELSE o.return_count + d.returns END
      AND n.retry_count - o.retry_count = d.retries
      AND (d.base = 2 OR n.max_attempts = o.max_attempts)
      AND n.slot IS NOT DISTINCT FROM d.slot
      AND CASE d.claim
        WHEN 1 THEN o.phase <> 1 AND n.phase = 1 AND n.claim_seq = n.seq
                AND n.claimed_at = n.moved_at
        WHEN 0 THEN n.phase = d.phase AND n.claim_seq = o.claim_seq
        ELSE n.claim_seq = o.claim_seq AND n.worker IS NOT DISTINCT FROM o.worker
         AND n.claimed_at IS NOT DISTINCT FROM o.claimed_at
         AND n.phase = CASE o.phase WHEN 1 THEN 1 ELSE d.phase END
        END
      AND (d.mask & 1 <> 0 OR (n.error_code IS NOT DISTINCT FROM o.error_code
                           AND n.error_category IS NOT DISTINCT FROM o.error_category
                           AND n.error_message IS NOT DISTINCT FROM o.error_message))
      AND (d.mask & 2 <> 0 OR n.run_at IS NOT DISTINCT FROM o.run_at)
      AND (d.mask & 4 <> 0 OR n.timer_at IS NOT DISTINCT FROM o.timer_at)
      AND (d.mask & 8 <> 0 OR n.result IS NOT DISTINCT FROM o.result)
      AND (d.mask & 16 <> 0 OR n.flags = o.flags)
      AND ((d.mask & 32 <> 0) = (n.new_payload IS NOT NULL))
      AND n.payload_seq = CASE WHEN d.mask & 32 <> 0 THEN n.seq ELSE o.payload_seq END
      AND (d.mask & 64 <> 0 OR n.finished_at IS NOT DISTINCT FROM o.finished_at)
      AND (d.mask & 128 <> 0 OR n.stamp_1 IS NOT DISTINCT FROM o.stamp_1)
      AND (d.mask & 256 <> 0 OR n.stamp_2 IS NOT DISTINCT FROM o.stamp_2)
      AND (d.mask & 512 <> 0 OR n.stamp_3 IS NOT DISTINCT FROM o.stamp_3)
      AND (d.mask & 1024 <> 0 OR n.stamp_4 IS NOT DISTINCT FROM o.stamp_4)
  ), events AS (
    INSERT INTO {schema}.event (job_id, seq, at, move, from_state, to_state, phase, claim, actor,
      worker, attempt, attempt_base, return_count, max_attempts, retry_count, flags, mask,
      error_code, error_category, error_message, note, run_at, timer_at, result, payload,
      old_payload, finished_at, stamp_1, stamp_2, stamp_3, stamp_4)
    SELECT id, seq, moved_at, move, from_state, state, phase, claim, actor,
      worker, attempt_count, attempt_base, return_count, max_attempts, retry_count, flags, mask,
      CASE WHEN mask & 1 <> 0 THEN error_code END, CASE WHEN mask & 1 <> 0 THEN error_category END,
      CASE WHEN mask & 1 <> 0 THEN error_message END, note,
      CASE WHEN mask & 2 <> 0 THEN run_at END, CASE WHEN mask & 4 <> 0 THEN timer_at END,
      CASE WHEN mask & 8 <> 0 THEN result END, new_payload,
      CASE WHEN mask & 32 <> 0 THEN (SELECT b.payload FROM {schema}.job_body b WHERE b.id = ok.id) END,
      CASE WHEN mask & 64 <> 0 THEN finished_at END, CASE WHEN mask & 128 <> 0 THEN stamp_1 END,
      CASE WHEN mask & 256 <> 0 THEN stamp_2 END, CASE WHEN mask & 512 <> 0 THEN stamp_3 END,
      CASE WHEN mask & 1024 <> 0 THEN stamp_4 END
    FROM ok
  ), flows AS (
    INSERT INTO {schema}.flow (queue, tenant, move, from_state, to_state, n, at)
    SELECT queue, tenant, move, from_state, state, count(*), max(moved_at)
    FROM ok GROUP BY 1, 2, 3, 4, 5
  )
  SELECT count(*), bool_or(keyed AND mask & 6144 <> 0), bool_or(new_payload IS NOT NULL),
         bool_or(phase = 0 AND from_phase <> 1 AND run_at <= moved_at)
    INTO written, keys, bodies, ready FROM ok;
  IF written <> total THEN
    SELECT count(*) INTO renewed
    FROM fresh n JOIN stale o ON o.id = n.id
    WHERE n.phase = 1
      AND (n.created_at, n.moved_at, n.run_at, n.timer_at, n.claimed_at, n.finished_at, n.stamp_1,
           n.stamp_2, n.stamp_3, n.stamp_4, n.seq, n.claim_seq, n.payload_seq, n.attempt_count,
           n.attempt_base, n.return_count, n.max_attempts, n.retry_count, n.salt, n.flags, n.phase,
           n.keyed, n.queue, n.tenant, n.state, n.move, n.actor, n.worker, n.slot, n.error_code,
           n.error_category, n.error_message, n.note, n.result, n.new_payload)
      IS NOT DISTINCT FROM
          (o.created_at, o.moved_at, o.run_at, o.timer_at, o.claimed_at, o.finished_at, o.stamp_1,
           o.stamp_2, o.stamp_3, o.stamp_4, o.seq, o.claim_seq, o.payload_seq, o.attempt_count,
           o.attempt_base, o.return_count, o.max_attempts, o.retry_count, o.salt, o.flags, o.phase,
           o.keyed, o.queue, o.tenant, o.state, o.move, o.actor, o.worker, o.slot, o.error_code,
           o.error_category, o.error_message, o.note, o.result, o.new_payload);
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
    PERFORM pg_notify('{schema}', queue) FROM (SELECT DISTINCT queue FROM fresh) q;
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_moves AFTER UPDATE ON {schema}.job
  REFERENCING OLD TABLE AS stale NEW TABLE AS fresh
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_moves();

CREATE FUNCTION {schema}.guard_prunes() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
DECLARE
  total  bigint;
  pruned bigint;
BEGIN
  SELECT count(*) INTO total FROM gone;
  IF total = 0 THEN RETURN NULL; END IF;
  WITH ok AS MATERIALIZED (
    SELECT o.id, o.queue, o.tenant, o.state, o.moved_at, d.move
    FROM gone o
    JOIN (SELECT DISTINCT queue, move, from_state FROM {schema}.declared WHERE to_state = '') d
      ON d.queue = o.queue AND d.from_state = o.state
    WHERE o.finished_at IS NOT NULL
  ), flows AS (
    INSERT INTO {schema}.flow (queue, tenant, move, from_state, to_state, n, at)
    SELECT queue, tenant, move, state, '', count(*), max(moved_at) FROM ok GROUP BY 1, 2, 3, 4
  )
  SELECT count(*) INTO pruned FROM ok;
  IF pruned <> total THEN
    RAISE EXCEPTION 'kesin: only finished jobs may be pruned' USING ERRCODE = 'check_violation';
  END IF;
  DELETE FROM {schema}.event WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.note WHERE job_id = ANY(ARRAY(SELECT id FROM gone));
  DELETE FROM {schema}.job_body WHERE id = ANY(ARRAY(SELECT id FROM gone));
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_prunes AFTER DELETE ON {schema}.job
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_prunes();

-- Events and bodies change only from inside the triggers above.
CREATE FUNCTION {schema}.guard_inner() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF pg_trigger_depth() < 2 THEN
    RAISE EXCEPTION 'kesin: % on % is not allowed: it is written by the job it belongs to',
      TG_OP, TG_TABLE_NAME USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_event AFTER INSERT OR UPDATE OR DELETE ON {schema}.event
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_inner();
CREATE TRIGGER guard_body AFTER UPDATE OR DELETE ON {schema}.job_body
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_inner();

CREATE FUNCTION {schema}.guard_bodies() RETURNS trigger
LANGUAGE plpgsql SET enable_nestloop = off SET enable_seqscan = off AS $guard$
BEGIN
  IF (SELECT count(*) FROM born) <> (
    SELECT count(*) FROM born b
    JOIN {schema}.job j ON j.id = b.id
    JOIN {schema}.declared d
      ON d.queue = j.queue AND d.move = j.move AND d.from_state = '' AND d.to_state = j.state
    WHERE j.id = ANY(ARRAY(SELECT id FROM born)) AND j.seq = 1
      AND j.queue IS NOT DISTINCT FROM b.queue AND j.tenant IS NOT DISTINCT FROM b.tenant
      AND j.keyed = (b.dedup_key IS NOT NULL)
      AND b.held_key IS NOT DISTINCT FROM CASE WHEN d.holds_key THEN b.dedup_key END)
  THEN
    RAISE EXCEPTION 'kesin: a body needs a job just born' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE TRIGGER guard_bodies AFTER INSERT ON {schema}.job_body
  REFERENCING NEW TABLE AS born FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_bodies();

CREATE FUNCTION {schema}.guard_truncate() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  RAISE EXCEPTION 'kesin: % may not be truncated', TG_TABLE_NAME USING ERRCODE = 'check_violation';
END $guard$;

CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.job
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.job_body
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();
CREATE TRIGGER guard_truncate BEFORE TRUNCATE ON {schema}.event
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.guard_truncate();

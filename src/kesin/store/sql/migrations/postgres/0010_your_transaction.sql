-- Priorities, keys that are held for good, and a function that enqueues in a transaction of the
-- caller's own.

-- Whether a queue has jobs of another priority than 0 waiting: else its claims look at one level.
CREATE INDEX job_prior ON {schema}.job (queue) WHERE phase = 0 AND priority <> 0;

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
    WHERE d.retired_at IS NULL AND n.seq = 1 AND n.claim_seq = 0 AND n.payload_seq = 1 AND n.phase = d.phase
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
     WHERE b.id = n.id AND b.id = ANY(ARRAY(SELECT id FROM fresh WHERE keyed)) AND NOT b.once;
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

CREATE OR REPLACE FUNCTION {schema}.guard_copied_bodies() RETURNS trigger
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
      AND b.held_key IS NOT DISTINCT FROM CASE WHEN d.holds_key OR b.once THEN b.dedup_key END)
  THEN
    RAISE EXCEPTION 'kesin: a copied body needs its job' USING ERRCODE = 'check_violation';
  END IF;
  RETURN NULL;
END $guard$;

CREATE FUNCTION {schema}.json_depth(value jsonb) RETURNS integer LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $depth$
  WITH RECURSIVE walk(part, depth) AS (
    SELECT value, 1
    UNION ALL
    SELECT inner_part, depth + 1
    FROM walk CROSS JOIN LATERAL (
      SELECT e.value FROM jsonb_each(CASE jsonb_typeof(part) WHEN 'object' THEN part END) e
      UNION ALL
      SELECT a.value FROM jsonb_array_elements(CASE jsonb_typeof(part) WHEN 'array' THEN part END) a
    ) AS parts(inner_part)
    WHERE depth <= 101 AND jsonb_typeof(inner_part) IN ('object', 'array')
  )
  SELECT max(depth) FROM walk
$depth$;
REVOKE ALL ON FUNCTION {schema}.json_depth FROM PUBLIC;

-- Enqueues in the caller's transaction: for drivers that Python's `within` does not take,
-- for triggers and for other languages. Its owner may write the tables, its caller need not.
CREATE FUNCTION {schema}.enqueue(
  queue        text,
  payload      text,                          -- JSON
  key          text        DEFAULT NULL,
  once         boolean     DEFAULT FALSE,     -- the key is held until the job is pruned
  tenant       text        DEFAULT 'default',
  priority     integer     DEFAULT 0,         -- -1 low, 1 high, 2 urgent; within the tenant
  run_at       timestamptz DEFAULT NULL,      -- now
  max_attempts integer     DEFAULT NULL,      -- as declared
  actor        text        DEFAULT 'producer'
) RETURNS TABLE (result text, job_id uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET kesin.copying = '' SET kesin.copied_queue = ''  -- a caller must not pass for a copy
AS $enqueue$
#variable_conflict use_column
DECLARE
  rules   jsonb;
  initial text;
  birth   {schema}.declared;
  at      bigint := {schema}.now_us();
  made    uuid;
  wrong   text;
BEGIN
  SELECT r.definition::jsonb INTO rules FROM {schema}.rules r
  WHERE r.queue = enqueue.queue AND r.version > 0 ORDER BY r.version DESC LIMIT 1;
  IF rules IS NULL THEN
    RAISE EXCEPTION 'kesin: the queue % is not open in this database', enqueue.queue
      USING ERRCODE = 'undefined_object';
  END IF;
  SELECT s ->> 'name' INTO initial FROM jsonb_array_elements(rules -> 'states') s
  WHERE (s ->> 'initial')::boolean;
  SELECT d.* INTO birth FROM {schema}.declared d
  WHERE d.queue = enqueue.queue AND d.from_state = '' AND d.to_state = initial AND d.retired_at IS NULL
    AND d.move IN (SELECT m ->> 'name' FROM jsonb_array_elements(rules -> 'moves') m
                   WHERE m ->> 'to' = initial AND coalesce(m -> 'sources', '[]') = '[]');
  max_attempts := coalesce(enqueue.max_attempts, (rules ->> 'max_attempts')::integer, 5);
  wrong := CASE
    WHEN enqueue.payload IS NULL OR octet_length(enqueue.payload) > 262144
      THEN 'the payload must be JSON of at most 262144 bytes'
    WHEN length(enqueue.key) NOT BETWEEN 1 AND 512 THEN 'key must have 1 to 512 characters'
    WHEN length(enqueue.tenant) BETWEEN 1 AND 128 IS NOT TRUE THEN 'tenant must have 1 to 128 characters'
    WHEN length(enqueue.actor) BETWEEN 1 AND 200 IS NOT TRUE THEN 'actor must have 1 to 200 characters'
    WHEN max_attempts NOT BETWEEN 1 AND 1000 THEN 'max_attempts must be in 1 to 1000'
    WHEN enqueue.once IS NULL OR (enqueue.once AND (enqueue.key IS NULL OR NOT birth.holds_key))
      THEN 'once needs a key, and an initial state that holds it'
    WHEN enqueue.priority BETWEEN -1 AND 2 IS NOT TRUE THEN 'priority must be -1, 0, 1 or 2'
    WHEN enqueue.run_at NOT BETWEEN '1973-04-01Z' AND '9999-12-30Z' THEN 'run_at must be in 1973 to 9999'
    -- Numbers and depths that PostgreSQL reads and other readers do not.
    WHEN regexp_replace(enqueue.payload, '"([^"\\]|\\.)*"', '', 'g') 
      ~ (repeat('[0-9]', 300) || '|[eE][+]?[0-9][0-9][0-9]')
      THEN 'the payload has a number that is too large'
    WHEN length(enqueue.payload) - length(translate(enqueue.payload, '[{', '')) > 5000
      THEN 'the payload must have at most 5000 lists and objects'
  END;
  IF wrong IS NULL THEN
    BEGIN
      IF {schema}.json_depth(enqueue.payload::jsonb) > 100 THEN
        wrong := 'the payload is nested deeper than 100 levels';
      END IF;
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
      wrong := 'the payload is no JSON: ' || SQLERRM;
    END;
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'kesin: %', wrong USING ERRCODE = 'check_violation';
  END IF;
  FOR attempt IN 1..3 LOOP
    -- A uuid of version 7: 48 bits of milliseconds, then random ones.
    made := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
      PLACING substring(int8send(at / 1000) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid;
    WITH body AS (
      INSERT INTO {schema}.job_body (id, queue, tenant, dedup_key, held_key, payload, once)
      SELECT made, enqueue.queue, enqueue.tenant, enqueue.key,
        CASE WHEN birth.holds_key THEN enqueue.key END, enqueue.payload, enqueue.once
      WHERE enqueue.key IS NULL OR NOT EXISTS (
        SELECT 1 FROM {schema}.job_body h
        WHERE h.queue = enqueue.queue AND h.tenant = enqueue.tenant AND h.held_key = enqueue.key)
      ON CONFLICT (queue, tenant, held_key) WHERE held_key IS NOT NULL DO NOTHING
      RETURNING id
    )
    INSERT INTO {schema}.job (id, queue, tenant, state, phase, move, actor, seq, max_attempts, salt,
      keyed, slot, created_at, moved_at, run_at, priority)
    SELECT id, enqueue.queue, enqueue.tenant, birth.to_state, birth.phase, birth.move, enqueue.actor, 1,
      max_attempts, ('x' || right(id::text, 8))::bit(32)::integer & 2147483647,
      enqueue.key IS NOT NULL, birth.slot, at, at,
      coalesce((extract(epoch FROM enqueue.run_at) * 1000000)::bigint, at), enqueue.priority
    FROM body;
    IF FOUND THEN
      RETURN QUERY SELECT 'inserted', made;
      RETURN;
    END IF;
    SELECT b.id INTO made FROM {schema}.job_body b
    WHERE b.queue = enqueue.queue AND b.tenant = enqueue.tenant AND b.held_key = enqueue.key;
    IF FOUND THEN
      INSERT INTO {schema}.note (queue, tenant, job_id, at, kind, actor)
      VALUES (enqueue.queue, enqueue.tenant, made, at, 'duplicate', enqueue.actor);
      RETURN QUERY SELECT 'duplicate', made;
      RETURN;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'kesin: the key % keeps changing hands: try again', enqueue.key
    USING ERRCODE = 'serialization_failure';
END $enqueue$;
REVOKE ALL ON FUNCTION {schema}.enqueue FROM PUBLIC;

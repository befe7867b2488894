-- The same guard for less work a move. Nearly every statement moves all its jobs along one edge: so
-- the edges that occur are looked up once, and the rows of each are held against it and go straight
-- into their events. Before, every row was joined with its own edge and set aside as a whole. Rows
-- are paired by hashing only: to sort whole jobs costs more than the check.

CREATE OR REPLACE FUNCTION {schema}.guard_moves() RETURNS trigger
LANGUAGE plpgsql
SET enable_nestloop = off SET enable_seqscan = off SET enable_mergejoin = off AS $guard$
DECLARE
  edge    {schema}.declared;
  total   bigint;
  moved   bigint;
  written bigint := 0;
  renewed bigint;
  keys    boolean := FALSE;
  bodies  boolean := FALSE;
  ready   boolean := FALSE;
BEGIN
  SELECT count(*) INTO total FROM fresh;
  IF total = 0 THEN RETURN NULL; END IF;
  FOR edge IN
    SELECT d.* FROM {schema}.declared d
    JOIN (SELECT DISTINCT queue, move, state FROM fresh) n
      ON d.queue = n.queue AND d.move = n.move AND d.to_state = n.state
    WHERE d.to_state <> '' AND d.from_state IN (SELECT state FROM stale)
  LOOP
    INSERT INTO {schema}.event (job_id, seq, at, move, from_state, to_state, phase, claim, actor,
      worker, attempt, attempt_base, return_count, max_attempts, retry_count, flags, mask,
      error_code, error_category, error_message, note, run_at, timer_at, result, payload,
      old_payload, finished_at, stamp_1, stamp_2, stamp_3, stamp_4)
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
      CASE WHEN edge.mask & 1024 <> 0 THEN n.stamp_4 END
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
      AND (edge.mask & 1024 <> 0 OR n.stamp_4 IS NOT DISTINCT FROM o.stamp_4);
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
    PERFORM pg_notify('{schema}', queue)
    FROM (SELECT DISTINCT n.queue FROM fresh n JOIN stale o ON o.id = n.id
          WHERE n.phase = 0 AND o.phase <> 1 AND n.run_at <= n.moved_at) q;
  END IF;
  RETURN NULL;
END $guard$;

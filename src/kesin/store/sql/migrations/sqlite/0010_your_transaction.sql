-- Priorities, and keys that are held for good: the job of such a key never lets go of it.

-- Whether a queue has jobs of another priority than 0 waiting: else its claims look at one level.
CREATE INDEX job_prior ON job (queue) WHERE phase = 0 AND priority <> 0;

DROP TRIGGER guard_births;
CREATE TRIGGER guard_births AFTER INSERT ON job
WHEN NOT EXISTS (SELECT 1 FROM copying WHERE queue = NEW.queue)
BEGIN
  INSERT INTO event (job_id, seq, at, move, from_state, to_state, phase, claim, actor, attempt,
    attempt_base, return_count, max_attempts, retry_count, flags, mask, note, run_at,
    stamp_1, stamp_2, stamp_3, stamp_4)
  VALUES (NEW.id, 1, NEW.created_at, NEW.move, '', NEW.state, NEW.phase, -1, NEW.actor, 0,
    0, 0, NEW.max_attempts, 0, 0, coalesce((
      SELECT d.mask FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move AND d.from_state = ''
        AND d.to_state = NEW.state AND d.retired_at IS NULL AND NEW.priority BETWEEN -1 AND 2
        AND (NEW.created_at < (unixepoch() + 86400) * 1000000
          OR EXISTS (SELECT 1 FROM rules WHERE queue = NEW.queue AND virtual_time))
        AND NEW.seq = 1 AND NEW.claim_seq = 0 AND NEW.payload_seq = 1 AND NEW.phase = d.phase
        AND NEW.attempt_count = 0 AND NEW.attempt_base = 0 AND NEW.return_count = 0
        AND NEW.retry_count = 0 AND NEW.moved_at = NEW.created_at AND NEW.flags = 0
        AND NEW.new_payload IS NULL AND NEW.slot IS d.slot AND NEW.result IS NULL
        AND NEW.error_code IS NULL AND NEW.error_category IS NULL AND NEW.error_message IS NULL
        AND NEW.timer_at IS NULL AND NEW.finished_at IS NULL
        AND (NEW.stamp_1 IS NULL OR d.mask & 128) AND (NEW.stamp_2 IS NULL OR d.mask & 256)
        AND (NEW.stamp_3 IS NULL OR d.mask & 512) AND (NEW.stamp_4 IS NULL OR d.mask & 1024)),
      iif(NEW.created_at < (unixepoch() + 86400) * 1000000
        OR EXISTS (SELECT 1 FROM rules WHERE queue = NEW.queue AND virtual_time),
        RAISE(ABORT, 'kesin: a job is created only by its declared enqueue'),
        RAISE(ABORT, 'kesin: a move more than a day ahead of the clock'))),
    NEW.note, NEW.run_at, NEW.stamp_1, NEW.stamp_2, NEW.stamp_3, NEW.stamp_4);
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  VALUES (NEW.queue, NEW.tenant, NEW.move, '', NEW.state, 1, NEW.created_at)
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
END;

DROP TRIGGER guard_moves;
CREATE TRIGGER guard_moves AFTER UPDATE OF
  moved_at, run_at, timer_at, claimed_at, finished_at, stamp_1, stamp_2, stamp_3, stamp_4, seq,
  claim_seq, payload_seq, attempt_count, attempt_base, return_count, max_attempts, retry_count,
  flags, phase, state, move, actor, worker, slot, error_code, error_category, error_message, note,
  result, new_payload ON job
BEGIN
  INSERT INTO event (job_id, seq, at, move, from_state, to_state, phase, claim, actor, worker,
    attempt, attempt_base, return_count, max_attempts, retry_count, flags, error_code,
    error_category, error_message, note, run_at, timer_at, result, payload, old_payload,
    finished_at, stamp_1, stamp_2, stamp_3, stamp_4, priority, mask)
  VALUES (NEW.id, NEW.seq, NEW.moved_at, NEW.move, OLD.state, NEW.state, NEW.phase,
    -- What is declared shows in an owned job; of another it has to be looked up.
    CASE WHEN NEW.claim_seq = NEW.seq THEN 1
         WHEN OLD.phase = 1 THEN iif(NEW.phase = 1, -1, 0)
         ELSE (SELECT d.claim FROM declared d
               WHERE d.queue = NEW.queue AND d.move = NEW.move
                 AND d.from_state = OLD.state AND d.to_state = NEW.state) END,
    NEW.actor, NEW.worker, NEW.attempt_count, NEW.attempt_base, NEW.return_count,
    NEW.max_attempts, NEW.retry_count, NEW.flags, NEW.error_code, NEW.error_category,
    NEW.error_message, NEW.note, NEW.run_at, NEW.timer_at, NEW.result, NEW.new_payload,
    iif(NEW.new_payload IS NULL, NULL, (SELECT payload FROM job_body WHERE id = NEW.id)),
    NEW.finished_at, NEW.stamp_1, NEW.stamp_2, NEW.stamp_3, NEW.stamp_4, NEW.priority,
    coalesce((
      SELECT d.mask FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state AND NEW.state <> ''
        AND d.retired_at IS NULL
        AND NEW.seq = OLD.seq + 1 AND NEW.moved_at >= OLD.moved_at
        AND (NEW.moved_at < (unixepoch() + 86400) * 1000000
          OR EXISTS (SELECT 1 FROM rules WHERE queue = NEW.queue AND virtual_time))
        AND NEW.attempt_count = OLD.attempt_count + d.counts
        AND NEW.retry_count = OLD.retry_count + d.retries
        AND NEW.slot IS d.slot
        AND ((d.base = 0 AND NEW.attempt_base = OLD.attempt_base
            AND NEW.return_count = OLD.return_count + d.returns
            AND NEW.max_attempts = OLD.max_attempts)
          OR (d.base = 1 AND NEW.attempt_base = OLD.attempt_base + 1
            AND NEW.return_count = OLD.return_count + d.returns
            AND NEW.max_attempts = OLD.max_attempts)
          OR (d.base = 2 AND NEW.attempt_base = OLD.attempt_count AND NEW.return_count = 0))
        AND ((d.claim = 1 AND OLD.phase <> 1 AND NEW.phase = 1 AND NEW.claim_seq = NEW.seq
            AND NEW.claimed_at = NEW.moved_at)
          OR (d.claim = 0 AND NEW.phase = d.phase AND NEW.claim_seq = OLD.claim_seq)
          OR (d.claim = -1 AND NEW.claim_seq = OLD.claim_seq AND NEW.worker IS OLD.worker
            AND NEW.claimed_at IS OLD.claimed_at
            AND NEW.phase = iif(OLD.phase = 1, 1, d.phase)))
        AND ((NEW.new_payload IS NULL AND d.mask & 32 = 0 AND NEW.payload_seq = OLD.payload_seq)
          OR (NEW.new_payload IS NOT NULL AND d.mask & 32 AND NEW.payload_seq = NEW.seq))
        AND ((NEW.error_code IS OLD.error_code AND NEW.error_category IS OLD.error_category
          AND NEW.error_message IS OLD.error_message) OR d.mask & 1)
        AND (NEW.run_at IS OLD.run_at OR d.mask & 2)
        AND (NEW.result IS OLD.result OR d.mask & 8)
        AND (NEW.finished_at IS OLD.finished_at OR d.mask & 64)),
      iif(NEW.moved_at < (unixepoch() + 86400) * 1000000
        OR EXISTS (SELECT 1 FROM rules WHERE queue = NEW.queue AND virtual_time),
        RAISE(ABORT, 'kesin: a job changes only by a declared move'),
        RAISE(ABORT, 'kesin: a move more than a day ahead of the clock'))));
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  VALUES (NEW.queue, NEW.tenant, NEW.move, OLD.state, NEW.state, 1, NEW.moved_at)
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
  -- A replaced payload is copied over; the key is held by the states declared to hold it.
  UPDATE job_body SET payload = NEW.new_payload WHERE NEW.new_payload IS NOT NULL AND id = NEW.id;
  UPDATE job_body SET held_key = (
      SELECT iif(d.holds_key, dedup_key, NULL) FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state)
   WHERE NEW.keyed AND id = NEW.id AND NOT once AND EXISTS (
      SELECT 1 FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state AND d.mask & 6144);
END;

DROP TRIGGER guard_body_birth;
CREATE TRIGGER guard_body_birth BEFORE INSERT ON job_body
BEGIN
  SELECT RAISE(ABORT, 'kesin: a body needs a job just born')
  WHERE EXISTS (SELECT 1 FROM job_body WHERE id = NEW.id) OR NOT EXISTS (
    SELECT 1 FROM job j JOIN declared d
      ON d.queue = j.queue AND d.move = j.move AND d.to_state = j.state
    WHERE j.id = NEW.id AND j.queue = NEW.queue AND j.tenant = NEW.tenant
      AND ((d.from_state = '' AND j.seq = 1)
        OR EXISTS (SELECT 1 FROM copying WHERE queue = NEW.queue))
      AND j.keyed = (NEW.dedup_key IS NOT NULL)
      AND NEW.held_key IS CASE WHEN d.holds_key OR NEW.once THEN NEW.dedup_key END);
END;

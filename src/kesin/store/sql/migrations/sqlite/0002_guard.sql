-- The guard: every change of a job is checked against the declared moves and leaves its event and
-- its count in the same statement. The event is inserted through the very look-up that checks the
-- move, so a move that is not declared has no event and is refused.

CREATE TRIGGER guard_birth_once BEFORE INSERT ON job
WHEN EXISTS (SELECT 1 FROM job WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a job with this id exists');
END;

CREATE TRIGGER guard_births AFTER INSERT ON job
BEGIN
  INSERT INTO event (job_id, seq, at, move, from_state, to_state, phase, claim, actor, attempt,
    attempt_base, return_count, max_attempts, retry_count, flags, mask, note, run_at,
    stamp_1, stamp_2, stamp_3, stamp_4)
  VALUES (NEW.id, 1, NEW.created_at, NEW.move, '', NEW.state, NEW.phase, -1, NEW.actor, 0,
    0, 0, NEW.max_attempts, 0, 0, coalesce((
      SELECT d.mask FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move AND d.from_state = ''
        AND d.to_state = NEW.state
        AND NEW.seq = 1 AND NEW.claim_seq = 0 AND NEW.payload_seq = 1 AND NEW.phase = d.phase
        AND NEW.attempt_count = 0 AND NEW.attempt_base = 0 AND NEW.return_count = 0
        AND NEW.retry_count = 0 AND NEW.moved_at = NEW.created_at AND NEW.flags = 0
        AND NEW.new_payload IS NULL AND NEW.slot IS d.slot AND NEW.result IS NULL
        AND NEW.error_code IS NULL AND NEW.error_category IS NULL AND NEW.error_message IS NULL
        AND NEW.timer_at IS NULL AND NEW.finished_at IS NULL
        AND (NEW.stamp_1 IS NULL OR d.mask & 128) AND (NEW.stamp_2 IS NULL OR d.mask & 256)
        AND (NEW.stamp_3 IS NULL OR d.mask & 512) AND (NEW.stamp_4 IS NULL OR d.mask & 1024)),
      RAISE(ABORT, 'kesin: a job may only be born by its declared enqueue')),
    NEW.note, NEW.run_at, NEW.stamp_1, NEW.stamp_2, NEW.stamp_3, NEW.stamp_4);
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  VALUES (NEW.queue, NEW.tenant, NEW.move, '', NEW.state, 1, NEW.created_at)
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
END;

CREATE TRIGGER guard_moves AFTER UPDATE ON job WHEN NEW.seq IS NOT OLD.seq
BEGIN
  INSERT INTO event (job_id, seq, at, move, from_state, to_state, phase, claim, actor, worker,
    attempt, attempt_base, return_count, max_attempts, retry_count, flags, error_code,
    error_category, error_message, note, run_at, timer_at, result, payload, old_payload,
    finished_at, stamp_1, stamp_2, stamp_3, stamp_4, mask)
  VALUES (NEW.id, NEW.seq, NEW.moved_at, NEW.move, OLD.state, NEW.state, NEW.phase,
    iif(NEW.claim_seq = NEW.seq, 1, (
      SELECT d.claim FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state)),
    NEW.actor, NEW.worker, NEW.attempt_count, NEW.attempt_base, NEW.return_count,
    NEW.max_attempts, NEW.retry_count, NEW.flags, NEW.error_code, NEW.error_category,
    NEW.error_message, NEW.note, NEW.run_at, NEW.timer_at, NEW.result, NEW.new_payload,
    iif(NEW.new_payload IS NULL, NULL, (SELECT payload FROM job_body WHERE id = NEW.id)),
    NEW.finished_at, NEW.stamp_1, NEW.stamp_2, NEW.stamp_3, NEW.stamp_4,
    coalesce((
      SELECT d.mask FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state AND NEW.state <> ''
        AND NEW.seq = OLD.seq + 1 AND NEW.id = OLD.id AND NEW.keyed = OLD.keyed
        AND NEW.queue = OLD.queue AND NEW.tenant = OLD.tenant AND NEW.created_at = OLD.created_at
        AND NEW.salt = OLD.salt AND NEW.moved_at >= OLD.moved_at
        AND NEW.attempt_count = OLD.attempt_count + d.counts
        AND NEW.attempt_base = CASE d.base WHEN 0 THEN OLD.attempt_base WHEN 1
          THEN OLD.attempt_base + 1 ELSE OLD.attempt_count END
        AND NEW.return_count = CASE d.base WHEN 2 THEN 0 ELSE OLD.return_count + d.returns END
        AND NEW.retry_count = OLD.retry_count + d.retries
        AND (NEW.max_attempts = OLD.max_attempts OR d.base = 2)
        AND NEW.slot IS d.slot
        AND CASE d.claim
          WHEN 1 THEN OLD.phase <> 1 AND NEW.phase = 1 AND NEW.claim_seq = NEW.seq
                  AND NEW.claimed_at = NEW.moved_at
          WHEN 0 THEN NEW.phase = d.phase AND NEW.claim_seq = OLD.claim_seq
          ELSE NEW.claim_seq = OLD.claim_seq AND NEW.worker IS OLD.worker
           AND NEW.claimed_at IS OLD.claimed_at
           AND NEW.phase = CASE OLD.phase WHEN 1 THEN 1 ELSE d.phase END
          END
        AND ((NEW.error_code IS OLD.error_code AND NEW.error_category IS OLD.error_category
          AND NEW.error_message IS OLD.error_message) OR d.mask & 1)
        AND (NEW.new_payload IS NOT NULL) = (d.mask & 32 <> 0)
        AND NEW.payload_seq = iif(d.mask & 32, NEW.seq, OLD.payload_seq)
        AND (NEW.run_at IS OLD.run_at OR d.mask & 2)
        AND (NEW.timer_at IS OLD.timer_at OR d.mask & 4)
        AND (NEW.result IS OLD.result OR d.mask & 8)
        AND (NEW.flags = OLD.flags OR d.mask & 16)
        AND (NEW.finished_at IS OLD.finished_at OR d.mask & 64)
        AND (NEW.stamp_1 IS OLD.stamp_1 OR d.mask & 128)
        AND (NEW.stamp_2 IS OLD.stamp_2 OR d.mask & 256)
        AND (NEW.stamp_3 IS OLD.stamp_3 OR d.mask & 512)
        AND (NEW.stamp_4 IS OLD.stamp_4 OR d.mask & 1024)),
      RAISE(ABORT, 'kesin: a job changes only by a declared move')));
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  VALUES (NEW.queue, NEW.tenant, NEW.move, OLD.state, NEW.state, 1, NEW.moved_at)
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
  -- A replaced payload is copied over; the key is held by the states declared to hold it.
  UPDATE job_body SET payload = NEW.new_payload WHERE NEW.new_payload IS NOT NULL AND id = NEW.id;
  UPDATE job_body SET held_key = (
      SELECT iif(d.holds_key, dedup_key, NULL) FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state)
   WHERE NEW.keyed AND id = NEW.id AND EXISTS (
      SELECT 1 FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state AND d.mask & 6144);
END;

CREATE TRIGGER guard_stays AFTER UPDATE ON job
WHEN NEW.seq IS OLD.seq
  AND (NEW.phase <> 1
   OR NEW.id IS NOT OLD.id OR NEW.created_at IS NOT OLD.created_at OR NEW.moved_at IS NOT OLD.moved_at
   OR NEW.run_at IS NOT OLD.run_at OR NEW.timer_at IS NOT OLD.timer_at OR NEW.claimed_at IS NOT OLD.claimed_at
   OR NEW.finished_at IS NOT OLD.finished_at OR NEW.stamp_1 IS NOT OLD.stamp_1 OR NEW.stamp_2 IS NOT OLD.stamp_2
   OR NEW.stamp_3 IS NOT OLD.stamp_3 OR NEW.stamp_4 IS NOT OLD.stamp_4 OR NEW.seq IS NOT OLD.seq
   OR NEW.claim_seq IS NOT OLD.claim_seq OR NEW.payload_seq IS NOT OLD.payload_seq OR NEW.attempt_count IS NOT OLD.attempt_count
   OR NEW.attempt_base IS NOT OLD.attempt_base OR NEW.return_count IS NOT OLD.return_count OR NEW.max_attempts IS NOT OLD.max_attempts
   OR NEW.retry_count IS NOT OLD.retry_count OR NEW.salt IS NOT OLD.salt OR NEW.flags IS NOT OLD.flags
   OR NEW.phase IS NOT OLD.phase OR NEW.keyed IS NOT OLD.keyed OR NEW.queue IS NOT OLD.queue OR NEW.tenant IS NOT OLD.tenant
   OR NEW.state IS NOT OLD.state OR NEW.move IS NOT OLD.move OR NEW.actor IS NOT OLD.actor
   OR NEW.worker IS NOT OLD.worker OR NEW.slot IS NOT OLD.slot OR NEW.error_code IS NOT OLD.error_code
   OR NEW.error_category IS NOT OLD.error_category OR NEW.error_message IS NOT OLD.error_message OR NEW.note IS NOT OLD.note
   OR NEW.result IS NOT OLD.result OR NEW.new_payload IS NOT OLD.new_payload)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a job changes only by a declared move');
END;

-- OR REPLACE would delete the holder of a slot or a key, past every trigger: refuse it first. The
-- store takes the word UNIQUE for a conflict, as it takes the index's own.
CREATE TRIGGER guard_slot BEFORE UPDATE OF slot ON job
WHEN NEW.slot IS NOT NULL AND NEW.slot IS NOT OLD.slot AND EXISTS (
  SELECT 1 FROM job WHERE queue = NEW.queue AND slot = NEW.slot AND id <> NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: UNIQUE slot: another job is in this exclusive state');
END;

CREATE TRIGGER guard_held_key BEFORE UPDATE OF held_key ON job_body
WHEN NEW.held_key IS NOT NULL AND NEW.held_key IS NOT OLD.held_key AND EXISTS (
  SELECT 1 FROM job_body
  WHERE queue = NEW.queue AND tenant = NEW.tenant AND held_key = NEW.held_key AND id <> NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: UNIQUE key: another job holds it');
END;

CREATE TRIGGER guard_new_key BEFORE INSERT ON job_body
WHEN NEW.held_key IS NOT NULL AND EXISTS (
  SELECT 1 FROM job_body
  WHERE queue = NEW.queue AND tenant = NEW.tenant AND held_key = NEW.held_key)
BEGIN
  SELECT RAISE(ABORT, 'kesin: UNIQUE key: another job holds it');
END;

CREATE TRIGGER guard_prunes BEFORE DELETE ON job
BEGIN
  SELECT RAISE(ABORT, 'kesin: only finished jobs may be pruned')
  WHERE OLD.finished_at IS NULL OR NOT EXISTS (
    SELECT 1 FROM declared d
    WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = '');
END;

CREATE TRIGGER prune_rest AFTER DELETE ON job
BEGIN
  DELETE FROM event WHERE job_id = OLD.id;
  DELETE FROM note WHERE job_id = OLD.id;
  DELETE FROM job_body WHERE id = OLD.id;
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  SELECT OLD.queue, OLD.tenant, d.move, OLD.state, '', 1, OLD.moved_at
  FROM declared d WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = ''
  LIMIT 1
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
END;

-- Bodies and events say nothing the job does not say.
CREATE TRIGGER guard_body_birth BEFORE INSERT ON job_body
BEGIN
  SELECT RAISE(ABORT, 'kesin: a body needs a job just born')
  WHERE EXISTS (SELECT 1 FROM job_body WHERE id = NEW.id) OR NOT EXISTS (
    SELECT 1 FROM job j JOIN declared d
      ON d.queue = j.queue AND d.move = j.move AND d.from_state = '' AND d.to_state = j.state
    WHERE j.id = NEW.id AND j.seq = 1 AND j.queue = NEW.queue AND j.tenant = NEW.tenant
      AND j.keyed = (NEW.dedup_key IS NOT NULL)
      AND NEW.held_key IS CASE WHEN d.holds_key THEN NEW.dedup_key END);
END;

CREATE TRIGGER guard_body BEFORE UPDATE ON job_body
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on job_body is not allowed: it is written by its job')
  WHERE NEW.id IS NOT OLD.id OR NEW.queue IS NOT OLD.queue OR NEW.tenant IS NOT OLD.tenant
     OR NEW.dedup_key IS NOT OLD.dedup_key
     OR (NEW.payload IS NOT OLD.payload
         AND NEW.payload IS NOT (SELECT new_payload FROM job WHERE id = NEW.id))
     OR (NEW.held_key IS NOT OLD.held_key AND NEW.held_key IS NOT (
         SELECT CASE WHEN d.holds_key THEN NEW.dedup_key END
         FROM job j JOIN declared d ON d.queue = j.queue AND d.move = j.move AND d.to_state = j.state
         WHERE j.id = NEW.id LIMIT 1));
END;

CREATE TRIGGER guard_body_end BEFORE DELETE ON job_body
WHEN EXISTS (SELECT 1 FROM job WHERE id = OLD.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on job_body is not allowed: it is written by its job');
END;

-- The event of a job's present seq is always there already, so nobody can bring another one.
CREATE TRIGGER guard_event_birth BEFORE INSERT ON event
WHEN (SELECT seq FROM job WHERE id = NEW.job_id) IS NOT NEW.seq
  OR EXISTS (SELECT 1 FROM event WHERE job_id = NEW.job_id AND seq = NEW.seq)
BEGIN
  SELECT RAISE(ABORT, 'kesin: INSERT on event is not allowed: it is written by its job');
END;

CREATE TRIGGER guard_event BEFORE UPDATE ON event
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on event is not allowed: it is written by its job');
END;

CREATE TRIGGER guard_event_end BEFORE DELETE ON event
WHEN EXISTS (SELECT 1 FROM job WHERE id = OLD.job_id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on event is not allowed: it is written by its job');
END;

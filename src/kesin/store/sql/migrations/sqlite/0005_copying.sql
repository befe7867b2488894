-- A way in for jobs that come from another store as they are, with their whole history. It is open
-- for one queue, inside one transaction: a row in `copying` breaks a key that is looked at when the
-- transaction ends, so no transaction can leave one behind. Changing a job stays what it was: even
-- here it takes a declared move; and every event that comes must be of one.

CREATE TABLE copying_over (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 0)
) STRICT;

CREATE TABLE copying (
  queue TEXT    NOT NULL PRIMARY KEY,
  ends  INTEGER NOT NULL DEFAULT 1 CHECK (ends = 1)
                REFERENCES copying_over (id) DEFERRABLE INITIALLY DEFERRED
) STRICT, WITHOUT ROWID;

CREATE TRIGGER guard_copying BEFORE INSERT ON copying
WHEN (SELECT foreign_keys FROM pragma_foreign_keys) = 0
BEGIN
  SELECT RAISE(ABORT, 'kesin: copying needs PRAGMA foreign_keys = ON: it ends with its transaction');
END;

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

DROP TRIGGER guard_prunes;
CREATE TRIGGER guard_prunes BEFORE DELETE ON job
WHEN NOT EXISTS (SELECT 1 FROM copying WHERE queue = OLD.queue)
BEGIN
  SELECT RAISE(ABORT, 'kesin: only finished jobs may be pruned')
  WHERE OLD.finished_at IS NULL OR NOT EXISTS (
    SELECT 1 FROM declared d
    WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = '');
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
      AND NEW.held_key IS CASE WHEN d.holds_key THEN NEW.dedup_key END);
END;

-- The events of a job are all there from its birth on, so only those of a copy can be missing.
DROP TRIGGER guard_event_birth;
CREATE TRIGGER guard_event_birth BEFORE INSERT ON event
WHEN (SELECT seq FROM job WHERE id = NEW.job_id) IS NOT NEW.seq
  OR EXISTS (SELECT 1 FROM event WHERE job_id = NEW.job_id AND seq = NEW.seq)
  OR EXISTS (SELECT 1 FROM copying c JOIN job j ON j.queue = c.queue WHERE j.id = NEW.job_id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: INSERT on event is not allowed: it is written by its job')
  WHERE EXISTS (SELECT 1 FROM event WHERE job_id = NEW.job_id AND seq = NEW.seq) OR NOT EXISTS (
    SELECT 1 FROM job j JOIN copying c ON c.queue = j.queue JOIN declared d
      ON d.queue = j.queue AND d.move = NEW.move AND d.from_state = NEW.from_state
     AND d.to_state = NEW.to_state
    WHERE j.id = NEW.job_id AND NEW.seq BETWEEN 1 AND j.seq AND NEW.mask & ~d.mask = 0);
END;

-- Slots with numbers, jobs that come after others, and how far a job is.

DROP TABLE parent;
CREATE TABLE parent (
  child  TEXT    NOT NULL,
  parent TEXT    NOT NULL,
  queue  TEXT    NOT NULL,            -- of the child
  done   INTEGER NOT NULL DEFAULT 0,  -- the parent has succeeded
  news   INTEGER NOT NULL DEFAULT 0,  -- the parent came to rest: look at the child
  PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX parent_of ON parent (parent);
CREATE INDEX parent_undone ON parent (child) WHERE NOT done;
CREATE INDEX parent_news ON parent (queue, child) WHERE news;

-- How far a job is, as its handler last said: beside the audit, for the claim it was said under.
CREATE TABLE progress (
  job_id    TEXT    NOT NULL PRIMARY KEY,
  claim_seq INTEGER NOT NULL,
  at        INTEGER NOT NULL,
  fraction  REAL,
  message   TEXT
) STRICT, WITHOUT ROWID;

-- The first slot of a queue is spelled as its state, any other state/tenant/number, with an empty
-- tenant where the slots are the queue's.
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
        AND CASE
          WHEN d.slot IS NULL THEN NEW.slot IS NULL
          WHEN d.from_state = d.to_state THEN NEW.slot IS OLD.slot
          WHEN d.slots_per = 0 AND NEW.slot = d.slot THEN TRUE
          -- state/tenant/number, as the number alone spells it again
          ELSE d.slots + d.slots_per > 1 AND NEW.slot = d.slot || '/' || iif(d.slots_per, NEW.tenant, '') || '/'
              || max(2 - d.slots_per, min(d.slots, CAST(substr(NEW.slot,
                length(d.slot) + iif(d.slots_per, length(NEW.tenant), 0) + 3) AS INTEGER)))
          END
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

-- A trigger of its own: most jobs have no children, and a condition costs less than a statement.
CREATE TRIGGER tell_children AFTER UPDATE OF phase ON job
WHEN NEW.phase IN (2, 3) AND EXISTS (SELECT 1 FROM parent WHERE parent = NEW.id)
BEGIN
  UPDATE parent
     SET news = 1, done = done OR (
       SELECT success FROM state WHERE queue = NEW.queue AND name = NEW.state)
   WHERE parent = NEW.id
     AND NOT (SELECT waits FROM state WHERE queue = NEW.queue AND name = NEW.state);
END;

DROP TRIGGER guard_prunes;
CREATE TRIGGER guard_prunes BEFORE DELETE ON job
WHEN NOT EXISTS (SELECT 1 FROM copying WHERE queue = OLD.queue)
BEGIN
  SELECT RAISE(ABORT, 'kesin: only jobs finished long enough ago may be pruned')
  WHERE OLD.finished_at IS NULL OR NOT EXISTS (
    SELECT 1 FROM declared d
    WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = ''
      AND (OLD.finished_at <= strftime('%s', 'now') * 1000000 + 1000000 - d.min_age_us
        OR EXISTS (SELECT 1 FROM rules WHERE queue = OLD.queue AND virtual_time)));
  SELECT RAISE(ABORT, 'kesin: a job that another waits for may not be pruned')
  WHERE EXISTS (
    SELECT 1 FROM parent p
    JOIN job c ON c.id = p.child
    JOIN state s ON s.queue = c.queue AND s.name = c.state
    WHERE p.parent = OLD.id AND (c.phase NOT IN (2, 3) OR s.waits));
END;

DROP TRIGGER prune_rest;
CREATE TRIGGER prune_rest AFTER DELETE ON job
BEGIN
  DELETE FROM parent WHERE child = OLD.id;
  DELETE FROM parent
   WHERE parent = OLD.id AND NOT EXISTS (SELECT 1 FROM copying WHERE queue = OLD.queue);
  DELETE FROM progress WHERE job_id = OLD.id;
  DELETE FROM event WHERE job_id = OLD.id;
  DELETE FROM note WHERE job_id = OLD.id;
  DELETE FROM job_body WHERE id = OLD.id;
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  SELECT OLD.queue, OLD.tenant, min(d.move), OLD.state, '', 1, OLD.moved_at FROM declared d
  WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = '' GROUP BY d.queue
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
END;

-- A job's parents are written with it, and marked by those that come to rest.
CREATE TRIGGER guard_parents BEFORE INSERT ON parent
WHEN NOT EXISTS (SELECT 1 FROM copying WHERE queue = NEW.queue)
BEGIN
  SELECT RAISE(ABORT, 'kesin: parents are written with the job that waits for them')
  WHERE NEW.child = NEW.parent
     OR EXISTS (SELECT 1 FROM parent WHERE child = NEW.child AND parent = NEW.parent)
     OR NOT EXISTS (
       SELECT 1 FROM job c JOIN state s ON s.queue = c.queue AND s.name = c.state
       WHERE c.id = NEW.child AND c.queue = NEW.queue AND c.seq = 1 AND s.waits);
END;

CREATE TRIGGER guard_heard BEFORE UPDATE ON parent
BEGIN
  SELECT RAISE(ABORT, 'kesin: a parent is marked only by its own moves')
  WHERE NEW.child <> OLD.child OR NEW.parent <> OLD.parent OR NEW.queue <> OLD.queue
     OR NEW.done < OLD.done OR ((NEW.done > OLD.done OR NEW.news > OLD.news) AND NOT EXISTS (
       SELECT 1 FROM job j JOIN state s ON s.queue = j.queue AND s.name = j.state
       WHERE j.id = NEW.parent AND j.phase IN (2, 3) AND NOT s.waits
         AND (s.success OR NEW.done = OLD.done)));
END;

CREATE TRIGGER guard_parents_end BEFORE DELETE ON parent
WHEN EXISTS (SELECT 1 FROM job WHERE id = OLD.child)
 AND EXISTS (SELECT 1 FROM job WHERE id = OLD.parent)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on parent is not allowed: it goes with its jobs');
END;

-- How many slots a state has may change; whose they are may not.
DROP TRIGGER guard_declared;
CREATE TRIGGER guard_declared BEFORE UPDATE ON declared
BEGIN
  SELECT RAISE(ABORT, 'kesin: a declared move is never changed')
  WHERE NEW.queue <> OLD.queue OR NEW.move <> OLD.move OR NEW.from_state <> OLD.from_state
     OR NEW.to_state <> OLD.to_state OR NEW.phase <> OLD.phase OR NEW.claim <> OLD.claim
     OR NEW.counts <> OLD.counts OR NEW.base <> OLD.base OR NEW.returns <> OLD.returns
     OR NEW.retries <> OLD.retries OR NEW.slot IS NOT OLD.slot OR NEW.holds_key <> OLD.holds_key
     OR (NEW.slots = 0) <> (OLD.slots = 0) OR NEW.slots_per <> OLD.slots_per
     OR NEW.mask & OLD.mask <> OLD.mask
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS NOT OLD.retired_at);
  INSERT INTO note (queue, tenant, at, kind, actor, details)
  SELECT NEW.queue, '', strftime('%s', 'now') * 1000000, 'declared', 'sqlite', json_object(
    'move', NEW.move, 'from', NEW.from_state, 'min_age_us', NEW.min_age_us,
    'slots', NEW.slots)
  WHERE NEW.min_age_us <> OLD.min_age_us OR NEW.slots <> OLD.slots;
END;

-- What upgrades, turns between tenants and the engine's next features stand on; and the guard closed
-- where a prompt could still pass it: counters, notes, declarations, and jobs finished a moment ago.

ALTER TABLE job ADD COLUMN priority INTEGER NOT NULL DEFAULT 0 CHECK (priority BETWEEN -1 AND 2);
ALTER TABLE event ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_body ADD COLUMN once INTEGER NOT NULL DEFAULT 0;  -- its key is held for good
ALTER TABLE declared ADD COLUMN slots INTEGER NOT NULL DEFAULT 0;  -- jobs that may be in to_state at once, 0: any
ALTER TABLE declared ADD COLUMN slots_per INTEGER NOT NULL DEFAULT 0;  -- 0: in the queue, 1: of a tenant
ALTER TABLE declared ADD COLUMN min_age_us INTEGER NOT NULL DEFAULT 0;  -- of a prune: since the job finished
ALTER TABLE declared ADD COLUMN retired_at INTEGER;  -- to_state was retired: no job may enter it
UPDATE declared SET slots = 1 WHERE slot IS NOT NULL;

DROP INDEX job_ready;
CREATE INDEX job_ready ON job (queue, tenant, priority, run_at, id) WHERE phase = 0;

-- Every version of a queue's lifecycle, whole. Version 0 is what was declared before versions were
-- kept: names of states, stamps and flags, and the edges.
CREATE TABLE rules (
  queue        TEXT    NOT NULL,
  version      INTEGER NOT NULL,
  fingerprint  TEXT    NOT NULL,
  definition   TEXT    NOT NULL,
  virtual_time INTEGER NOT NULL,  -- its times are injected, as by tests and simulations
  declared_at  INTEGER NOT NULL,
  PRIMARY KEY (queue, version)
) STRICT, WITHOUT ROWID;
INSERT INTO rules
SELECT l.queue, 0, '', json_set(l.definition, '$.edges', json((
    SELECT json_group_array(json_array(d.move, d.from_state, d.to_state))
    FROM declared d WHERE d.queue = l.queue))), 0, l.declared_at
FROM lifecycle l;

CREATE TABLE state (
  queue      TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  phase      INTEGER NOT NULL,  -- of an unclaimed job in it
  success    INTEGER NOT NULL,
  waits      INTEGER NOT NULL DEFAULT 0,  -- at rest, but only until its parents are
  retired_at INTEGER,
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE parent (
  child  TEXT    NOT NULL,
  parent TEXT    NOT NULL,
  done   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (child, parent)
) STRICT, WITHOUT ROWID;
CREATE INDEX parent_of ON parent (parent);
CREATE INDEX parent_undone ON parent (child) WHERE NOT done;

CREATE TABLE schedule (
  queue      TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  definition TEXT    NOT NULL,
  next_at    INTEGER NOT NULL,
  PRIMARY KEY (queue, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE meter (
  queue   TEXT    NOT NULL,
  tenant  TEXT    NOT NULL,
  move    TEXT    NOT NULL,
  free_at INTEGER NOT NULL,
  PRIMARY KEY (queue, tenant, move)
) STRICT, WITHOUT ROWID;

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
        AND d.to_state = NEW.state AND d.retired_at IS NULL AND NEW.priority = 0
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
   WHERE NEW.keyed AND id = NEW.id AND EXISTS (
      SELECT 1 FROM declared d
      WHERE d.queue = NEW.queue AND d.move = NEW.move
        AND d.from_state = OLD.state AND d.to_state = NEW.state AND d.mask & 6144);
END;

CREATE TRIGGER guard_priority AFTER UPDATE OF priority ON job
BEGIN
  SELECT RAISE(ABORT, 'kesin: a job changes only by a declared move')
  WHERE NEW.seq <> OLD.seq + 1 OR NOT EXISTS (
    SELECT 1 FROM declared d
    WHERE d.queue = NEW.queue AND d.move = NEW.move
      AND d.from_state = OLD.state AND d.to_state = NEW.state
      AND (NEW.priority = OLD.priority OR d.mask & 8192));
END;

CREATE TRIGGER guard_once BEFORE UPDATE OF once ON job_body
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on job_body is not allowed: it is written by its job')
  WHERE NEW.once IS NOT OLD.once;
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
END;

DROP TRIGGER prune_rest;
CREATE TRIGGER prune_rest AFTER DELETE ON job
BEGIN
  DELETE FROM event WHERE job_id = OLD.id;
  DELETE FROM note WHERE job_id = OLD.id;
  DELETE FROM job_body WHERE id = OLD.id;
  INSERT INTO flow (queue, tenant, move, from_state, to_state, n, at)
  SELECT OLD.queue, OLD.tenant, min(d.move), OLD.state, '', 1, OLD.moved_at FROM declared d
  WHERE d.queue = OLD.queue AND d.from_state = OLD.state AND d.to_state = '' GROUP BY d.queue
  ON CONFLICT DO UPDATE SET n = n + 1, at = max(at, excluded.at);
END;

-- Counters grow by one with each move. A statement at a prompt can do that too: `kesin audit verify`
-- counts the events. INSERT OR REPLACE would begin one anew, and no trigger sees what it replaces:
-- the names of all counters stand here a second time.
CREATE TABLE counter (
  queue      TEXT NOT NULL,
  tenant     TEXT NOT NULL,
  move       TEXT NOT NULL,
  from_state TEXT NOT NULL,
  to_state   TEXT NOT NULL,
  PRIMARY KEY (queue, tenant, move, from_state, to_state)
) STRICT, WITHOUT ROWID;
INSERT INTO counter SELECT queue, tenant, move, from_state, to_state FROM flow;

CREATE TRIGGER guard_flow_birth AFTER INSERT ON flow
BEGIN
  SELECT RAISE(ABORT, 'kesin: INSERT on flow is not allowed: it is written by the jobs it counts')
  WHERE (NEW.n <> 1 AND NOT EXISTS (SELECT 1 FROM copying WHERE queue = NEW.queue))
     OR EXISTS (
       SELECT 1 FROM counter
       WHERE queue = NEW.queue AND tenant = NEW.tenant AND move = NEW.move
         AND from_state = NEW.from_state AND to_state = NEW.to_state);
  INSERT INTO counter VALUES (NEW.queue, NEW.tenant, NEW.move, NEW.from_state, NEW.to_state);
END;

CREATE TRIGGER guard_counter_birth BEFORE INSERT ON counter
WHEN NOT EXISTS (
  SELECT 1 FROM flow
  WHERE queue = NEW.queue AND tenant = NEW.tenant AND move = NEW.move
    AND from_state = NEW.from_state AND to_state = NEW.to_state)
BEGIN
  SELECT RAISE(ABORT, 'kesin: INSERT on counter is not allowed: it is written by flow');
END;

CREATE TRIGGER guard_counter BEFORE UPDATE ON counter
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on counter is not allowed: it is written by flow');
END;

CREATE TRIGGER guard_counter_end BEFORE DELETE ON counter
WHEN EXISTS (
  SELECT 1 FROM flow
  WHERE queue = OLD.queue AND tenant = OLD.tenant AND move = OLD.move
    AND from_state = OLD.from_state AND to_state = OLD.to_state)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on counter is not allowed: it is written by flow');
END;

CREATE TRIGGER flow_end AFTER DELETE ON flow
BEGIN
  DELETE FROM counter
   WHERE queue = OLD.queue AND tenant = OLD.tenant AND move = OLD.move
     AND from_state = OLD.from_state AND to_state = OLD.to_state;
END;

CREATE TRIGGER guard_flow AFTER UPDATE OF n, at ON flow
WHEN (NEW.n <> OLD.n + 1 OR NEW.at < OLD.at)
  AND NOT EXISTS (SELECT 1 FROM copying WHERE queue = NEW.queue)
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on flow is not allowed: it is written by the jobs it counts');
END;

CREATE TRIGGER guard_flow_fixed BEFORE UPDATE OF queue, tenant, move, from_state, to_state ON flow
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on flow is not allowed: it is written by the jobs it counts');
END;

CREATE TRIGGER guard_flow_end BEFORE DELETE ON flow
WHEN NOT EXISTS (SELECT 1 FROM copying WHERE queue = OLD.queue)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on flow is not allowed: it is written by the jobs it counts');
END;

-- A note goes with its job and never changes.
CREATE TRIGGER guard_note_once BEFORE INSERT ON note
WHEN EXISTS (SELECT 1 FROM note WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a note with this id exists');
END;

CREATE TRIGGER guard_note BEFORE UPDATE ON note
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on note is not allowed: it goes with its job');
END;

CREATE TRIGGER guard_note_end BEFORE DELETE ON note
WHEN OLD.job_id IS NULL OR EXISTS (SELECT 1 FROM job WHERE id = OLD.job_id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on note is not allowed: it goes with its job');
END;

-- Declarations only grow. What may change leaves a note, as a new version does.
CREATE TRIGGER guard_declared_once BEFORE INSERT ON declared
WHEN EXISTS (
  SELECT 1 FROM declared
  WHERE queue = NEW.queue AND move = NEW.move AND from_state = NEW.from_state
    AND to_state = NEW.to_state)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a declared move is never changed');
END;

CREATE TRIGGER guard_declared BEFORE UPDATE ON declared
BEGIN
  SELECT RAISE(ABORT, 'kesin: a declared move is never changed')
  WHERE NEW.queue <> OLD.queue OR NEW.move <> OLD.move OR NEW.from_state <> OLD.from_state
     OR NEW.to_state <> OLD.to_state OR NEW.phase <> OLD.phase OR NEW.claim <> OLD.claim
     OR NEW.counts <> OLD.counts OR NEW.base <> OLD.base OR NEW.returns <> OLD.returns
     OR NEW.retries <> OLD.retries OR NEW.slot IS NOT OLD.slot OR NEW.holds_key <> OLD.holds_key
     OR NEW.slots <> OLD.slots OR NEW.slots_per <> OLD.slots_per
     OR NEW.mask & OLD.mask <> OLD.mask
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS NOT OLD.retired_at);
  INSERT INTO note (queue, tenant, at, kind, actor, details)
  SELECT NEW.queue, '', strftime('%s', 'now') * 1000000, 'declared', 'sqlite', json_object(
    'move', NEW.move, 'from', NEW.from_state, 'min_age_us', NEW.min_age_us)
  WHERE NEW.min_age_us <> OLD.min_age_us;
END;

CREATE TRIGGER guard_declared_end BEFORE DELETE ON declared
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on declared is not allowed: declarations only grow');
END;

CREATE TRIGGER guard_state_once BEFORE INSERT ON state
WHEN EXISTS (SELECT 1 FROM state WHERE queue = NEW.queue AND name = NEW.name)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a declared state is never changed');
END;

CREATE TRIGGER guard_state BEFORE UPDATE ON state
BEGIN
  SELECT RAISE(ABORT, 'kesin: a declared state is never changed')
  WHERE NEW.queue <> OLD.queue OR NEW.name <> OLD.name OR NEW.phase <> OLD.phase
     OR NEW.success <> OLD.success OR NEW.waits <> OLD.waits
     OR (OLD.retired_at IS NOT NULL AND NEW.retired_at IS NOT OLD.retired_at);
  INSERT INTO note (queue, tenant, at, kind, actor, details)
  SELECT NEW.queue, '', strftime('%s', 'now') * 1000000, 'declared', 'sqlite', json_object(
    'state', NEW.name, 'retired_at', NEW.retired_at)
  WHERE NEW.retired_at IS NOT OLD.retired_at;
END;

CREATE TRIGGER guard_state_end BEFORE DELETE ON state
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on state is not allowed: declarations only grow');
END;

CREATE TRIGGER guard_rules_once BEFORE INSERT ON rules
WHEN EXISTS (SELECT 1 FROM rules WHERE queue = NEW.queue AND version = NEW.version)
BEGIN
  SELECT RAISE(ABORT, 'kesin: a version of rules is never changed');
END;

CREATE TRIGGER note_rules AFTER INSERT ON rules
BEGIN
  INSERT INTO note (queue, tenant, at, kind, actor, details)
  VALUES (NEW.queue, '', strftime('%s', 'now') * 1000000, 'declared', 'sqlite', json_object(
    'version', NEW.version, 'fingerprint', NEW.fingerprint, 'virtual_time', NEW.virtual_time));
END;

CREATE TRIGGER guard_rules BEFORE UPDATE ON rules
BEGIN
  SELECT RAISE(ABORT, 'kesin: UPDATE on rules is not allowed: declarations only grow');
END;

CREATE TRIGGER guard_rules_end BEFORE DELETE ON rules
BEGIN
  SELECT RAISE(ABORT, 'kesin: DELETE on rules is not allowed: declarations only grow');
END;

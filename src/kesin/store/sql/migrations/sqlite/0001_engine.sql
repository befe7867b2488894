-- The engine's tables. Times are microseconds since 1970; text columns hold canonical JSON where
-- they hold JSON. A job is two rows: the hot one that moves, and the body that does not, so that
-- moving a job never touches its payload or its keys. WITHOUT ROWID saves a look-up by id, and
-- keeps a job's events side by side.

CREATE TABLE declared (
  queue       TEXT    NOT NULL,
  move        TEXT    NOT NULL,
  from_state  TEXT    NOT NULL,  -- '' for a birth
  to_state    TEXT    NOT NULL,  -- '' for a prune
  phase       INTEGER NOT NULL,  -- of an unclaimed job in to_state
  claim       INTEGER NOT NULL,  -- 1 takes, 0 drops, -1 keeps the claim
  counts      INTEGER NOT NULL,  -- attempts it counts
  base        INTEGER NOT NULL,  -- attempt_base: 0 stays, 1 returns one, 2 renews
  returns     INTEGER NOT NULL,  -- what it adds to return_count
  retries     INTEGER NOT NULL,  -- what it adds to retry_count
  mask        INTEGER NOT NULL,  -- the free columns it may set; 2048 takes, 4096 frees the key
  slot        TEXT,  -- to_state where that is exclusive
  holds_key   INTEGER NOT NULL,  -- in to_state
  PRIMARY KEY (queue, move, from_state, to_state)
) STRICT, WITHOUT ROWID;

CREATE TABLE lifecycle (
  queue       TEXT    NOT NULL PRIMARY KEY,
  declared_at INTEGER NOT NULL,
  definition  TEXT    NOT NULL  -- names of stamps and flags, for readers of the rows
) STRICT, WITHOUT ROWID;

CREATE TABLE job (
  id             TEXT    NOT NULL PRIMARY KEY,
  created_at     INTEGER NOT NULL,
  moved_at       INTEGER NOT NULL,
  run_at         INTEGER,
  timer_at       INTEGER,
  claimed_at     INTEGER,
  lease_until    INTEGER,
  finished_at    INTEGER,
  stamp_1        INTEGER,
  stamp_2        INTEGER,
  stamp_3        INTEGER,
  stamp_4        INTEGER,
  seq            INTEGER NOT NULL,
  claim_seq      INTEGER NOT NULL DEFAULT 0,
  payload_seq    INTEGER NOT NULL DEFAULT 1,
  attempt_count  INTEGER NOT NULL DEFAULT 0,
  attempt_base   INTEGER NOT NULL DEFAULT 0,
  return_count   INTEGER NOT NULL DEFAULT 0,
  max_attempts   INTEGER NOT NULL,
  retry_count    INTEGER NOT NULL DEFAULT 0,
  salt           INTEGER NOT NULL,
  flags          INTEGER NOT NULL DEFAULT 0,
  phase          INTEGER NOT NULL,  -- 0 ready, 1 owned, 2 resting, 3 over, 4 waiting
  keyed          INTEGER NOT NULL DEFAULT 0,  -- its body has a dedup key
  queue          TEXT    NOT NULL,
  tenant         TEXT    NOT NULL,
  state          TEXT    NOT NULL,
  move           TEXT    NOT NULL,
  actor          TEXT    NOT NULL,
  worker         TEXT,
  slot           TEXT,
  error_code     TEXT,
  error_category TEXT,
  error_message  TEXT,
  note           TEXT,
  result         TEXT,
  new_payload    TEXT,
  CONSTRAINT job_owned  CHECK ((phase = 1) = (worker IS NOT NULL)
                           AND (phase = 1) = (lease_until IS NOT NULL)
                           AND (phase = 1) = (claimed_at IS NOT NULL)),
  CONSTRAINT job_budget CHECK (0 <= attempt_base AND attempt_base <= attempt_count
                           AND attempt_count - attempt_base <= max_attempts),
  CONSTRAINT job_due    CHECK (run_at IS NOT NULL OR phase IN (1, 2, 3)),
  CONSTRAINT job_phase  CHECK (phase BETWEEN 0 AND 4)
) STRICT, WITHOUT ROWID;

-- No index on a lease: renewing one must stay cheap.
CREATE INDEX job_ready ON job (queue, tenant, run_at, id) WHERE phase = 0;
CREATE INDEX job_owned ON job (queue, id) WHERE phase = 1;
CREATE INDEX job_timer ON job (queue, timer_at, id) WHERE timer_at IS NOT NULL;
CREATE INDEX job_spent ON job (queue, id)
  WHERE phase = 0 AND max_attempts <= attempt_count - attempt_base;
CREATE INDEX job_aged  ON job (queue, stamp_1, id) WHERE phase = 0 AND stamp_1 IS NOT NULL;
CREATE INDEX job_state ON job (queue, tenant, state, id) WHERE phase <> 1;
CREATE UNIQUE INDEX job_slot ON job (queue, slot) WHERE slot IS NOT NULL;

CREATE TABLE job_body (
  id         TEXT    NOT NULL PRIMARY KEY,
  queue      TEXT    NOT NULL,
  tenant     TEXT    NOT NULL,
  dedup_key  TEXT,
  held_key   TEXT,  -- dedup_key while the job's state holds it
  payload    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX job_body_key ON job_body (queue, tenant, held_key)
  WHERE held_key IS NOT NULL;

-- Columns hold what the job had after the move; mask says which of them the move set.
CREATE TABLE event (
  job_id         TEXT    NOT NULL,
  at             INTEGER NOT NULL,
  run_at         INTEGER,
  timer_at       INTEGER,
  finished_at    INTEGER,
  stamp_1        INTEGER,
  stamp_2        INTEGER,
  stamp_3        INTEGER,
  stamp_4        INTEGER,
  seq            INTEGER NOT NULL,
  attempt        INTEGER NOT NULL,  -- attempt_count after the move
  attempt_base   INTEGER NOT NULL,
  return_count   INTEGER NOT NULL,
  max_attempts   INTEGER NOT NULL,
  retry_count    INTEGER NOT NULL,
  flags          INTEGER NOT NULL,
  mask           INTEGER NOT NULL,  -- the free columns this move may set
  phase          INTEGER NOT NULL,
  claim          INTEGER NOT NULL,
  move           TEXT    NOT NULL,
  from_state     TEXT    NOT NULL,
  to_state       TEXT    NOT NULL,
  actor          TEXT    NOT NULL,
  worker         TEXT,
  error_code     TEXT,
  error_category TEXT,
  error_message  TEXT,
  note           TEXT,
  result         TEXT,
  payload        TEXT,
  old_payload    TEXT,
  PRIMARY KEY (job_id, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE note (
  id      INTEGER PRIMARY KEY,
  queue   TEXT    NOT NULL,
  tenant  TEXT    NOT NULL,
  job_id  TEXT,
  at      INTEGER NOT NULL,
  kind    TEXT    NOT NULL,
  actor   TEXT    NOT NULL,
  details TEXT
) STRICT;
CREATE INDEX note_job ON note (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE flow (
  queue      TEXT    NOT NULL,
  tenant     TEXT    NOT NULL,
  move       TEXT    NOT NULL,
  from_state TEXT    NOT NULL,
  to_state   TEXT    NOT NULL,
  n          INTEGER NOT NULL,
  at         INTEGER NOT NULL DEFAULT 0,  -- the latest such move
  PRIMARY KEY (queue, tenant, move, from_state, to_state)
) STRICT, WITHOUT ROWID;

CREATE TABLE paused (
  queue  TEXT    NOT NULL,
  tenant TEXT    NOT NULL,  -- '' for the whole queue
  at     INTEGER NOT NULL,
  actor  TEXT    NOT NULL,
  reason TEXT,
  PRIMARY KEY (queue, tenant)
) STRICT, WITHOUT ROWID;

-- The engine's tables. Times are microseconds since 1970; text columns hold canonical JSON where
-- they hold JSON. A job is two rows: the hot one that moves, and the body that does not, so that
-- moving a job never touches its payload or its keys. Columns that are never null and of fixed
-- length stand first, where PostgreSQL finds them without walking the row; text compares by bytes,
-- as in SQLite, and several times faster than by a language's rules.

CREATE TABLE {schema}.declared (
  queue       text COLLATE "C" NOT NULL,
  move        text COLLATE "C" NOT NULL,
  from_state  text COLLATE "C" NOT NULL,           -- '' for a birth
  to_state    text COLLATE "C" NOT NULL,           -- '' for a prune
  phase       smallint NOT NULL,           -- of an unclaimed job in to_state
  claim       smallint NOT NULL,           -- 1 takes, 0 drops, -1 keeps the claim
  counts      smallint NOT NULL,           -- attempts it counts
  base        smallint NOT NULL,           -- attempt_base: 0 stays, 1 returns one, 2 renews
  returns     smallint NOT NULL,           -- what it adds to return_count
  retries     smallint NOT NULL,           -- what it adds to retry_count
  mask        integer  NOT NULL,           -- the free columns it may set; 2048 takes, 4096 frees the key
  slot        text COLLATE "C",                        -- to_state where that is exclusive
  holds_key   boolean  NOT NULL,           -- in to_state
  PRIMARY KEY (queue, move, from_state, to_state)
);

CREATE TABLE {schema}.lifecycle (
  queue       text COLLATE "C" NOT NULL PRIMARY KEY,
  declared_at bigint NOT NULL,
  definition  text NOT NULL              -- names of stamps and flags, for readers of the rows
);

CREATE TABLE {schema}.job (
  id             uuid     NOT NULL PRIMARY KEY,
  created_at     bigint   NOT NULL,
  moved_at       bigint   NOT NULL,
  seq            integer  NOT NULL,
  claim_seq      integer  NOT NULL DEFAULT 0,
  payload_seq    integer  NOT NULL DEFAULT 1,
  attempt_count  integer  NOT NULL DEFAULT 0,
  attempt_base   integer  NOT NULL DEFAULT 0,
  return_count   integer  NOT NULL DEFAULT 0,
  max_attempts   integer  NOT NULL,
  retry_count    integer  NOT NULL DEFAULT 0,
  salt           integer  NOT NULL,
  flags          integer  NOT NULL DEFAULT 0,
  phase          smallint NOT NULL,        -- 0 ready, 1 owned, 2 resting, 3 over, 4 waiting
  keyed          boolean  NOT NULL DEFAULT FALSE, -- its body has a dedup key
  queue          text     COLLATE "C" NOT NULL,
  tenant         text     COLLATE "C" NOT NULL,
  state          text     COLLATE "C" NOT NULL,
  move           text     COLLATE "C" NOT NULL,
  actor          text     COLLATE "C" NOT NULL,
  run_at         bigint,
  timer_at       bigint,
  claimed_at     bigint,
  lease_until    bigint,
  finished_at    bigint,
  stamp_1        bigint,
  stamp_2        bigint,
  stamp_3        bigint,
  stamp_4        bigint,
  worker         text     COLLATE "C",
  slot           text     COLLATE "C",
  error_code     text     COLLATE "C",
  error_category text     COLLATE "C",
  error_message  text,
  note           text,
  result         text,
  new_payload    text,
  CONSTRAINT job_owned  CHECK ((phase = 1) = (worker IS NOT NULL)
                           AND (phase = 1) = (lease_until IS NOT NULL)
                           AND (phase = 1) = (claimed_at IS NOT NULL)),
  CONSTRAINT job_budget CHECK (0 <= attempt_base AND attempt_base <= attempt_count
                           AND attempt_count - attempt_base <= max_attempts),
  CONSTRAINT job_due    CHECK (run_at IS NOT NULL OR phase IN (1, 2, 3)),
  CONSTRAINT job_phase  CHECK (phase BETWEEN 0 AND 4)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.02);

-- No index on a lease: renewing one must stay a heap-only update.
CREATE INDEX job_ready ON {schema}.job (queue, tenant, run_at, id) WHERE phase = 0;
CREATE INDEX job_owned ON {schema}.job (queue, id) WHERE phase = 1;
CREATE INDEX job_timer ON {schema}.job (queue, timer_at, id) WHERE timer_at IS NOT NULL;
CREATE INDEX job_spent ON {schema}.job (queue, id)
  WHERE phase = 0 AND max_attempts <= attempt_count - attempt_base;
CREATE INDEX job_aged  ON {schema}.job (queue, stamp_1, id) WHERE phase = 0 AND stamp_1 IS NOT NULL;
CREATE INDEX job_state ON {schema}.job (queue, tenant, state, id) WHERE phase <> 1;
CREATE UNIQUE INDEX job_slot ON {schema}.job (queue, slot) WHERE slot IS NOT NULL;

CREATE TABLE {schema}.job_body (
  id         uuid NOT NULL PRIMARY KEY,
  queue      text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  dedup_key  text COLLATE "C",
  held_key   text COLLATE "C",                         -- dedup_key while the job's state holds it
  payload    text NOT NULL
) WITH (fillfactor = 95);
CREATE UNIQUE INDEX job_body_key ON {schema}.job_body (queue, tenant, held_key)
  WHERE held_key IS NOT NULL;

CREATE TABLE {schema}.event (
  job_id         uuid     NOT NULL,
  at             bigint   NOT NULL,
  seq            integer  NOT NULL,
  attempt        integer  NOT NULL,        -- attempt_count after the move
  attempt_base   integer  NOT NULL,
  return_count   integer  NOT NULL,
  max_attempts   integer  NOT NULL,
  retry_count    integer  NOT NULL,
  flags          integer  NOT NULL,
  mask           integer  NOT NULL,        -- the free columns this move may set
  phase          smallint NOT NULL,
  claim          smallint NOT NULL,
  move           text     COLLATE "C" NOT NULL,
  from_state     text     COLLATE "C" NOT NULL,
  to_state       text     COLLATE "C" NOT NULL,
  actor          text     COLLATE "C" NOT NULL,
  run_at         bigint,
  timer_at       bigint,
  finished_at    bigint,
  stamp_1        bigint,
  stamp_2        bigint,
  stamp_3        bigint,
  stamp_4        bigint,
  worker         text     COLLATE "C",
  error_code     text     COLLATE "C",
  error_category text     COLLATE "C",
  error_message  text,
  note           text,
  result         text,
  payload        text,
  old_payload    text,
  PRIMARY KEY (job_id, seq)
);
CREATE INDEX event_at ON {schema}.event USING brin (at);

CREATE TABLE {schema}.note (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue   text COLLATE "C" NOT NULL,
  tenant  text COLLATE "C" NOT NULL,
  job_id  uuid,
  at      bigint NOT NULL,
  kind    text COLLATE "C" NOT NULL,
  actor   text COLLATE "C" NOT NULL,
  details text
);
CREATE INDEX note_job ON {schema}.note (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE {schema}.flow (
  queue      text COLLATE "C" NOT NULL,
  tenant     text COLLATE "C" NOT NULL,
  move       text COLLATE "C" NOT NULL,
  from_state text COLLATE "C" NOT NULL,
  to_state   text COLLATE "C" NOT NULL,
  n          bigint NOT NULL,
  at         bigint NOT NULL DEFAULT 0               -- the latest such move
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX flow_queue ON {schema}.flow (queue);

CREATE TABLE {schema}.paused (
  queue  text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,                  -- '' for the whole queue
  at     bigint NOT NULL,
  actor  text COLLATE "C" NOT NULL,
  reason text,
  PRIMARY KEY (queue, tenant)
);

-- Who may come in, what they did, and what is kept sealed. Lists are JSON; flags are 0 or 1.

CREATE TABLE {schema}.site (
  id         text COLLATE "C" NOT NULL PRIMARY KEY,  -- the tenant of its jobs
  name       text     NOT NULL,
  channel    text     NOT NULL,
  timezone   text     NOT NULL,
  currency   text     NOT NULL,
  settings   text     NOT NULL,
  created_at bigint   NOT NULL,
  changed_at bigint   NOT NULL
);

CREATE TABLE {schema}.person (
  name          text COLLATE "C" NOT NULL PRIMARY KEY,
  password_hash text     NOT NULL,
  role          text     NOT NULL,
  all_sites     smallint NOT NULL,
  sites         text     NOT NULL,
  queues        text     NOT NULL,
  created_at    bigint   NOT NULL,
  changed_at    bigint   NOT NULL,
  disabled_at   bigint
);

CREATE TABLE {schema}.session (
  token_hash text COLLATE "C" NOT NULL PRIMARY KEY,
  person     text COLLATE "C" NOT NULL,
  created_at bigint   NOT NULL,
  used_at    bigint   NOT NULL,
  expires_at bigint   NOT NULL,
  address    text     NOT NULL
);
CREATE INDEX session_person ON {schema}.session (person);

CREATE TABLE {schema}.api_key (
  id          text COLLATE "C" NOT NULL PRIMARY KEY,  -- the readable part of the key
  secret_hash text     NOT NULL,
  name        text     NOT NULL,
  scopes      text     NOT NULL,
  site        text COLLATE "C",                       -- none: every site
  created_at  bigint   NOT NULL,
  created_by  text     NOT NULL,
  expires_at  bigint,
  used_at     bigint,
  revoked_at  bigint
);

CREATE TABLE {schema}.audit (
  id         bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at         bigint   NOT NULL,
  actor      text COLLATE "C" NOT NULL,
  action     text COLLATE "C" NOT NULL,
  allowed    smallint NOT NULL,
  queue      text COLLATE "C",
  site       text COLLATE "C",
  target     text,
  details    text,
  request_id text,
  address    text
);
CREATE INDEX audit_actor ON {schema}.audit (actor, id);
CREATE INDEX audit_at ON {schema}.audit (at);  -- for pruning

CREATE TABLE {schema}.secret (
  name       text COLLATE "C" NOT NULL PRIMARY KEY,
  sealed     text     NOT NULL,
  changed_at bigint   NOT NULL,
  changed_by text     NOT NULL
);

CREATE FUNCTION {schema}.audit_kept() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  RAISE EXCEPTION 'kesin: an audit line is never changed' USING ERRCODE = 'check_violation';
END $guard$;
CREATE TRIGGER audit_kept BEFORE UPDATE OR TRUNCATE ON {schema}.audit
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.audit_kept();

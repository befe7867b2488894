-- Who may come in, what they did, and what is kept sealed. Lists are JSON; flags are 0 or 1.

CREATE TABLE site (
  id         TEXT    NOT NULL PRIMARY KEY,  -- the tenant of its jobs
  name       TEXT    NOT NULL,
  channel    TEXT    NOT NULL,
  timezone   TEXT    NOT NULL,
  currency   TEXT    NOT NULL,
  settings   TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE person (
  name          TEXT    NOT NULL PRIMARY KEY,
  password_hash TEXT    NOT NULL,
  role          TEXT    NOT NULL,
  all_sites     INTEGER NOT NULL,
  sites         TEXT    NOT NULL,
  queues        TEXT    NOT NULL,
  created_at    INTEGER NOT NULL,
  changed_at    INTEGER NOT NULL,
  disabled_at   INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
  token_hash TEXT    NOT NULL PRIMARY KEY,
  person     TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  address    TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_person ON session (person);

CREATE TABLE api_key (
  id          TEXT    NOT NULL PRIMARY KEY,  -- the readable part of the key
  secret_hash TEXT    NOT NULL,
  name        TEXT    NOT NULL,
  scopes      TEXT    NOT NULL,
  site        TEXT,  -- none: every site
  created_at  INTEGER NOT NULL,
  created_by  TEXT    NOT NULL,
  expires_at  INTEGER,
  used_at     INTEGER,
  revoked_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  id         INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL,
  actor      TEXT    NOT NULL,
  action     TEXT    NOT NULL,
  allowed    INTEGER NOT NULL,
  queue      TEXT,
  site       TEXT,
  target     TEXT,
  details    TEXT,
  request_id TEXT,
  address    TEXT
) STRICT;
CREATE INDEX audit_actor ON audit (actor, id);
CREATE INDEX audit_at ON audit (at);  -- for pruning

CREATE TABLE secret (
  name       TEXT    NOT NULL PRIMARY KEY,
  sealed     TEXT    NOT NULL,
  changed_at INTEGER NOT NULL,
  changed_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- OR REPLACE would overwrite a line past the trigger on updates: refuse a taken id first.
CREATE TRIGGER audit_once BEFORE INSERT ON audit
WHEN EXISTS (SELECT 1 FROM audit WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'kesin: an audit line is never changed');
END;

CREATE TRIGGER audit_kept BEFORE UPDATE ON audit
BEGIN
  SELECT RAISE(ABORT, 'kesin: an audit line is never changed');
END;

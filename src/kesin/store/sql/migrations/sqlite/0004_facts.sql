-- What a workload knows about a site beside its jobs, and must not forget. Values are JSON.

CREATE TABLE fact (
  workload   TEXT    NOT NULL,
  site       TEXT    NOT NULL,  -- '' for all sites together
  name       TEXT    NOT NULL,
  value      TEXT    NOT NULL,
  changed_at INTEGER NOT NULL,
  PRIMARY KEY (workload, site, name)
) STRICT, WITHOUT ROWID;

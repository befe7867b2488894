-- What a workload knows about a site beside its jobs, and must not forget. Values are JSON.

CREATE TABLE {schema}.fact (
  workload   text COLLATE "C" NOT NULL,
  site       text COLLATE "C" NOT NULL,  -- '' for all sites together
  name       text COLLATE "C" NOT NULL,
  value      text     NOT NULL,
  changed_at bigint   NOT NULL,
  PRIMARY KEY (workload, site, name)
);

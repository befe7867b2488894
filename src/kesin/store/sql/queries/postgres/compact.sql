WITH old AS MATERIALIZED (
  SELECT ctid FROM {schema}.flow WHERE queue = %(queue)s LIMIT 20000 FOR UPDATE SKIP LOCKED
),
gone AS (
  DELETE FROM {schema}.flow WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
  RETURNING queue, tenant, move, from_state, to_state, n, at
),
kept AS (
  INSERT INTO {schema}.flow
  SELECT queue, tenant, move, from_state, to_state, sum(n), max(at) FROM gone GROUP BY 1, 2, 3, 4, 5
  RETURNING 1
)
SELECT (SELECT count(*) FROM gone) - (SELECT count(*) FROM kept)

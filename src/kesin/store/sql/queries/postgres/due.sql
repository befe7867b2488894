tenants AS (
  {tenants}
),
open AS MATERIALIZED (
  SELECT t.tenant
  FROM tenants t
  WHERE NOT EXISTS (
      SELECT 1 FROM {schema}.paused p WHERE p.queue = %(queue)s AND p.tenant IN ('', t.tenant))
    AND (
      SELECT TRUE FROM {schema}.job j
      WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0
        AND j.run_at <= (SELECT t FROM clock)
      ORDER BY j.run_at LIMIT 1)
),
share AS (
  SELECT (%(limit)s + count(*) - 1) / greatest(count(*), 1) AS n FROM open
),
pick AS MATERIALIZED (
  SELECT c.id
  FROM open t
  CROSS JOIN LATERAL (
    SELECT d.id, d.run_at, row_number() OVER (ORDER BY d.run_at, d.id) AS turn
    FROM (
      SELECT j.id, j.run_at
      FROM {schema}.job j
      WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0
        AND j.run_at <= (SELECT t FROM clock)
        AND ({condition})
      ORDER BY j.run_at, j.id
      LIMIT (SELECT n FROM share)
      {lock}
    ) d
  ) c
  ORDER BY c.turn, c.run_at, c.id
  LIMIT %(limit)s
)

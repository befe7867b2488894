WITH RECURSIVE
tenants(tenant) AS (
  {tenants}
),
open AS MATERIALIZED (
  SELECT t.tenant
  FROM tenants t
  WHERE t.tenant IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM paused p WHERE p.queue = :queue AND p.tenant IN ('', t.tenant))
    AND EXISTS (
      SELECT 1 FROM job j
      WHERE j.queue = :queue AND j.tenant = t.tenant AND j.phase = 0 AND j.run_at <= :now)
),
pick AS MATERIALIZED (
  SELECT c.id
  FROM open t
  CROSS JOIN job c ON c.id IN (
    SELECT j.id
    FROM job j INDEXED BY job_ready
    WHERE j.queue = :queue AND j.tenant = t.tenant AND j.phase = 0 AND j.run_at <= :now
      AND ({condition})
    ORDER BY j.run_at, j.id
    LIMIT (SELECT (:limit + count(*) - 1) / max(count(*), 1) FROM open))
  ORDER BY row_number() OVER (PARTITION BY t.tenant ORDER BY c.run_at, c.id), c.run_at, c.id
  LIMIT :limit
)
SELECT {columns}
FROM pick
CROSS JOIN job j ON j.id = pick.id
CROSS JOIN job_body b ON b.id = pick.id
ORDER BY j.run_at, j.id

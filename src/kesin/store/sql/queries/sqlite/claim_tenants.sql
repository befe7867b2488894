WITH RECURSIVE
tenants(tenant) AS (
  {tenants}
)
SELECT t.tenant
FROM tenants t
WHERE t.tenant IS NOT NULL
  AND NOT EXISTS (
    SELECT 1 FROM paused p WHERE p.queue = :queue AND p.tenant IN ('', t.tenant))
  AND EXISTS (
    SELECT 1 FROM job j
    WHERE j.queue = :queue AND j.tenant = t.tenant AND j.phase = 0 AND j.run_at <= :now)

WITH RECURSIVE
tenants(tenant) AS (
  {tenants}
),
levels(level) AS MATERIALIZED (
  SELECT 0
  UNION ALL
  SELECT l.value FROM json_each('[2, 1, -1]') l
  WHERE EXISTS (SELECT 1 FROM job INDEXED BY job_prior
                WHERE queue = :queue AND phase = 0 AND priority <> 0)
)
SELECT
  (SELECT min((SELECT min(j.run_at) FROM job j
               WHERE j.queue = :queue AND j.tenant = t.tenant AND j.phase = 0
                 AND j.priority = l.level AND j.run_at <= :now))
   FROM tenants t CROSS JOIN levels l WHERE :oldest AND t.tenant IS NOT NULL),
  (SELECT count(*) FROM job INDEXED BY job_owned
   WHERE queue = :queue AND phase = 1 AND lease_until <= :now),
  :now

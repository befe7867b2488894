WITH RECURSIVE
tenants(tenant) AS (
  {tenants}
)
SELECT
  (SELECT min((SELECT min(j.run_at) FROM job j
               WHERE j.queue = :queue AND j.tenant = t.tenant AND j.phase = 0
                 AND j.priority = l.value AND j.run_at <= :now))
   FROM tenants t CROSS JOIN json_each('[2, 1, 0, -1]') l WHERE t.tenant IS NOT NULL),
  (SELECT count(*) FROM job INDEXED BY job_owned
   WHERE queue = :queue AND phase = 1 AND lease_until <= :now)

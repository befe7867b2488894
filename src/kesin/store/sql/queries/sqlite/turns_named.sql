WITH given(tenant) AS (SELECT DISTINCT value FROM json_each(:tenants))
SELECT tenant, EXISTS (
  SELECT 1 FROM job INDEXED BY job_prior
  WHERE queue = :queue AND phase = 0 AND priority <> 0) AS prior
FROM given
ORDER BY tenant <= :after, tenant

WITH RECURSIVE
ahead(tenant) AS (
  SELECT min(j.tenant) FROM job j
  WHERE j.queue = :queue AND j.phase = 0 AND j.tenant > :after
  UNION ALL
  SELECT (SELECT min(j.tenant) FROM job j
          WHERE j.queue = :queue AND j.phase = 0 AND j.tenant > t.tenant)
  FROM ahead t WHERE t.tenant IS NOT NULL
),
behind(tenant) AS (
  SELECT min(j.tenant) FROM job j
  WHERE j.queue = :queue AND j.phase = 0 AND j.tenant <= :after
  UNION ALL
  SELECT (SELECT min(j.tenant) FROM job j
          WHERE j.queue = :queue AND j.phase = 0 AND j.tenant > t.tenant AND j.tenant <= :after)
  FROM behind t WHERE t.tenant IS NOT NULL
)
SELECT tenant, EXISTS (
  SELECT 1 FROM job INDEXED BY job_prior
  WHERE queue = :queue AND phase = 0 AND priority <> 0) AS prior
FROM (
  SELECT tenant FROM ahead WHERE tenant IS NOT NULL
  UNION ALL
  SELECT tenant FROM behind WHERE tenant IS NOT NULL)

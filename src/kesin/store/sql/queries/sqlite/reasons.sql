WITH i AS MATERIALIZED (
  {input}
)
SELECT i.ord, {reason}, j.state, j.seq, j.tenant
FROM i
LEFT JOIN job AS j ON j.id = i.id AND j.queue = :queue
  AND (:tenants IS NULL OR j.tenant IN (SELECT value FROM json_each(:tenants)))

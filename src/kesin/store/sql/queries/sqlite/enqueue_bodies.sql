WITH i AS MATERIALIZED (
  {input}
)
INSERT INTO job_body (id, queue, tenant, dedup_key, held_key, payload, once)
SELECT i.id, :queue, i.tenant, i.dedup_key, {held_key}, i.payload, i.once
FROM i
WHERE EXISTS (SELECT 1 FROM job j WHERE j.id = i.id)
ORDER BY i.ord

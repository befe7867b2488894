WITH i AS MATERIALIZED (
  {input}
)
SELECT i.id::text, h.id::text
FROM i
CROSS JOIN LATERAL (
  SELECT b.queue, b.tenant, b.dedup_key FROM {schema}.job_body b WHERE b.id = i.id OFFSET 0
) b
CROSS JOIN LATERAL (
  SELECT h.id FROM {schema}.job_body h
  WHERE h.queue = b.queue AND h.tenant = b.tenant AND h.held_key = b.dedup_key OFFSET 0
) h

WITH i AS MATERIALIZED (
  {input}
)
SELECT i.id, h.id
FROM i
CROSS JOIN job_body b ON b.id = i.id
CROSS JOIN job_body h
  ON h.queue = b.queue AND h.tenant = b.tenant AND h.held_key = b.dedup_key

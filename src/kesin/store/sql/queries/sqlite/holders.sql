WITH i AS MATERIALIZED (
  {input}
)
SELECT i.ord, b.id, j.state, j.seq
FROM i
JOIN job_body b ON b.queue = :queue AND b.tenant = i.tenant AND b.held_key = i.dedup_key
JOIN job j ON j.id = b.id

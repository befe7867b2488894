WITH i AS MATERIALIZED (
  {input}
)
SELECT i.ord, b.id::text, j.state, j.seq
FROM i
CROSS JOIN LATERAL (
  SELECT b.id FROM {schema}.job_body b
  WHERE b.queue = %(queue)s AND b.tenant = i.tenant AND b.held_key = i.dedup_key OFFSET 0
) b
CROSS JOIN LATERAL (SELECT j.state, j.seq FROM {schema}.job j WHERE j.id = b.id OFFSET 0) j

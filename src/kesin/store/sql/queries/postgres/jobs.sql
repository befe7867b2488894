-- BETWEEN, though the states are equal: then the planner expects few jobs in a state, whatever the
-- statistics say, and reads job_state. By the primary key, it would search all jobs for them.
WITH pairs AS MATERIALIZED (
  {pairs}
),
heads AS MATERIALIZED (  -- where the pairs begin; those that begin too late are not read
  SELECT p.tenant, p.state
  FROM pairs p
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.state BETWEEN p.state AND p.state
      AND j.id {beyond} %(cursor)s::uuid
      {filters}
    ORDER BY j.id {order}
    LIMIT 1
  ) h
  WHERE {wanted}
  ORDER BY h.id {order}
  LIMIT %(limit)s
),
found AS MATERIALIZED (
  SELECT c.id
  FROM heads p
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.state BETWEEN p.state AND p.state
      AND j.id {beyond} %(cursor)s::uuid
      {filters}
    ORDER BY j.id {order}
    LIMIT %(limit)s
  ) c
  UNION ALL
  (SELECT j.id
   FROM {schema}.job j
   WHERE j.queue = %(queue)s AND j.phase = 1 AND j.id {beyond} %(cursor)s::uuid
     AND {owned}
     {filters}
   ORDER BY j.id {order}
   LIMIT %(limit)s)
  ORDER BY id {order}
  LIMIT %(limit)s
)
SELECT {columns}
FROM found
CROSS JOIN LATERAL (SELECT j.* FROM {schema}.job j WHERE j.id = found.id OFFSET 0) j
CROSS JOIN LATERAL (
  SELECT b.dedup_key, b.payload, b.once FROM {schema}.job_body b WHERE b.id = found.id OFFSET 0
) b
ORDER BY j.id {order}

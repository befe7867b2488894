WITH pairs AS MATERIALIZED (
  {pairs}
),
heads AS MATERIALIZED (  -- where the pairs begin; those that begin too late are not read
  SELECT p.tenant, p.state, (
    SELECT j.id
    FROM job j INDEXED BY job_state
    WHERE j.queue = :queue AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.id {beyond} :cursor
      {filters}
    ORDER BY j.id {order}
    LIMIT 1) AS id
  FROM pairs p
  WHERE {wanted}
),
found AS MATERIALIZED (
  SELECT c.id
  FROM (SELECT tenant, state FROM heads WHERE id IS NOT NULL ORDER BY id {order} LIMIT :limit) p
  CROSS JOIN job c ON c.id IN (
    SELECT j.id
    FROM job j INDEXED BY job_state
    WHERE j.queue = :queue AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.id {beyond} :cursor
      {filters}
    ORDER BY j.id {order}
    LIMIT :limit)
  UNION ALL
  SELECT id FROM (
    SELECT j.id
    FROM job j INDEXED BY job_owned
    WHERE j.queue = :queue AND j.phase = 1 AND j.id {beyond} :cursor
      AND {owned}
      {filters}
    ORDER BY j.id {order}
    LIMIT :limit)
  ORDER BY 1 {order}
  LIMIT :limit
)
SELECT {columns}
FROM found
CROSS JOIN job j ON j.id = found.id
CROSS JOIN job_body b ON b.id = found.id
ORDER BY j.id {order}

WITH pairs AS MATERIALIZED (
  {pairs}
),
i AS (
  SELECT NULL AS token
),
judged AS (
  SELECT j.id, j.state, 1 AS n, {verdict} AS verdict
  FROM pairs p
  CROSS JOIN job j INDEXED BY job_state
    ON j.queue = :queue AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
  CROSS JOIN i
  WHERE {wanted}
    {filters}
  UNION ALL
  SELECT j.id, j.state, 1, {verdict}
  FROM job j INDEXED BY job_owned
  CROSS JOIN i
  WHERE j.queue = :queue AND j.phase = 1
    AND {owned}
    {filters}
  {immovable}
)
{summed}

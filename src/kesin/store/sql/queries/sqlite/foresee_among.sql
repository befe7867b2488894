WITH i AS (
  SELECT NULL AS token
),
judged AS (
  SELECT j.id, j.state, 1 AS n, {verdict} AS verdict
  FROM json_each(:ids) n
  CROSS JOIN job j ON j.id = n.value
  CROSS JOIN i
  WHERE j.queue = :queue
    AND {owned}
    {filters}
)
{summed}

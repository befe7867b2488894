WITH {clock},
pairs AS MATERIALIZED (
  {pairs}
),
judged AS (
  SELECT c.id, c.state, c.n, c.verdict
  FROM pairs p
  CROSS JOIN LATERAL (
    SELECT j.id, j.state, 1 AS n, {verdict} AS verdict
    FROM {schema}.job j
    CROSS JOIN (SELECT NULL::integer AS token) i
    WHERE j.queue = %(queue)s AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.state BETWEEN p.state AND p.state  -- as in jobs.sql
      {filters}
    OFFSET 0
  ) c
  WHERE {wanted}
  UNION ALL
  SELECT j.id, j.state, 1, {verdict}
  FROM {schema}.job j
  CROSS JOIN (SELECT NULL::integer AS token) i
  WHERE j.queue = %(queue)s AND j.phase = 1
    AND {owned}
    {filters}
  {immovable}
)
{summed}

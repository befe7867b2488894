WITH {clock},
judged AS (
  SELECT c.id, c.state, c.n, c.verdict
  FROM unnest(%(ids)s::uuid[]) AS n(id)
  CROSS JOIN LATERAL (
    SELECT j.id, j.state, 1 AS n, {verdict} AS verdict
    FROM {schema}.job j
    CROSS JOIN (SELECT NULL::integer AS token) i
    WHERE j.id = n.id AND j.queue = %(queue)s
      AND {owned}
      {filters}
    OFFSET 0
  ) c
)
{summed}

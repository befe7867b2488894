WITH coded AS (
  SELECT j.state, j.error_code, count(*) AS n
  FROM {schema}.job j
  WHERE j.queue = %(queue)s AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
    AND {owned}
  GROUP BY j.state, j.error_code
)
SELECT state, error_code, n FROM (
  SELECT state, error_code, n FROM coded
  UNION ALL
  SELECT p.state, NULL::text, sum(p.n) - coalesce(
    (SELECT sum(c.n) FROM coded c WHERE c.state = p.state), 0
  ) FROM (
    {pairs}
  ) p
  WHERE {wanted}
  GROUP BY p.state
) every
WHERE n > 0

WITH counted AS (
  {counted}
),
judged AS (
  SELECT j.id, j.state, j.n, {verdict} AS verdict
  FROM (SELECT '' AS id, state, error_code, n, 0 AS phase, 0 AS claim_seq FROM counted) j
  CROSS JOIN (SELECT NULL AS token) i
)
{summed}

WITH counted AS (
  {counted}
),
judged AS (
  SELECT j.id, j.state, j.n, {verdict} AS verdict
  FROM (SELECT '00000000-0000-0000-0000-000000000000'::uuid AS id, state, error_code, n, 0 AS phase, 0 AS claim_seq FROM counted) j
  CROSS JOIN (SELECT NULL::integer AS token) i
)
{summed}

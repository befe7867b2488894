SELECT state, reason, CAST(sum(n) AS bigint)
FROM (
  SELECT c.state, c.n, {reason} AS reason
  FROM judged c{bodies}
) r
GROUP BY state, reason

SELECT state, reason, count(*)
FROM (
  SELECT c.state, {reason} AS reason
  FROM judged c{bodies}
) r
GROUP BY state, reason

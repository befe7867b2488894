SELECT p.state, NULL AS error_code, sum(p.n) AS n FROM (
  {pairs}
) p
WHERE {wanted}
GROUP BY p.state

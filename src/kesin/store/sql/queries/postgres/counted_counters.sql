SELECT p.state, NULL::text AS error_code, sum(p.n) AS n FROM (
  {pairs}
) p
WHERE {wanted}
GROUP BY p.state

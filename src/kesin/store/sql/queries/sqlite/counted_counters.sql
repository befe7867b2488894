SELECT p.state, sum(p.n) AS n FROM (
  {pairs}
) p
WHERE {wanted}
GROUP BY p.state

SELECT f.tenant, f.state, sum(f.n) AS n
  FROM (SELECT tenant, to_state AS state, n FROM flow WHERE queue = :queue
        UNION ALL
        SELECT tenant, from_state, -n FROM flow WHERE queue = :queue) f
  WHERE f.state <> ''
  GROUP BY f.tenant, f.state
  HAVING sum(f.n) > 0

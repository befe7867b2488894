ahead AS (
  (SELECT j.tenant FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.phase = 0 AND j.tenant > %(after)s
    ORDER BY j.tenant, j.priority LIMIT 1)
  UNION ALL
  SELECT (SELECT j.tenant FROM {schema}.job j
          WHERE j.queue = %(queue)s AND j.phase = 0 AND j.tenant > t.tenant
          ORDER BY j.tenant, j.priority LIMIT 1)
  FROM ahead t WHERE t.tenant IS NOT NULL
),
behind AS (
  (SELECT j.tenant FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.phase = 0 AND j.tenant <= %(after)s
    ORDER BY j.tenant, j.priority LIMIT 1)
  UNION ALL
  SELECT (SELECT j.tenant FROM {schema}.job j
          WHERE j.queue = %(queue)s AND j.phase = 0 AND j.tenant > t.tenant
            AND j.tenant <= %(after)s
          ORDER BY j.tenant, j.priority LIMIT 1)
  FROM behind t WHERE t.tenant IS NOT NULL
),
turns AS (
  SELECT tenant FROM ahead UNION ALL SELECT tenant FROM behind
)

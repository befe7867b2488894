(SELECT j.tenant FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.phase = 0 ORDER BY j.tenant, j.priority LIMIT 1)
  UNION ALL
  SELECT (SELECT j.tenant FROM {schema}.job j
          WHERE j.queue = %(queue)s AND j.phase = 0 AND j.tenant > t.tenant
          ORDER BY j.tenant, j.priority LIMIT 1)
  FROM tenants t WHERE t.tenant IS NOT NULL

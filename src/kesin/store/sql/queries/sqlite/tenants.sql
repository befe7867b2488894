SELECT min(j.tenant) FROM job j WHERE j.queue = :queue AND j.phase = 0
  UNION ALL
  SELECT (SELECT min(j.tenant) FROM job j
          WHERE j.queue = :queue AND j.phase = 0 AND j.tenant > t.tenant)
  FROM tenants t WHERE t.tenant IS NOT NULL

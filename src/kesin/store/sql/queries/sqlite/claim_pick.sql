SELECT {columns}
FROM job j
CROSS JOIN job_body b ON b.id = j.id
WHERE j.queue = :queue AND j.tenant = :tenant AND j.phase = 0 AND j.priority = :level
  AND j.run_at <= :now
  AND ({condition})
ORDER BY j.run_at, j.id
LIMIT :share

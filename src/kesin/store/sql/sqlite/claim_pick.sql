SELECT j.run_at, j.id
FROM job j
WHERE j.queue = :queue AND j.tenant = :tenant AND j.phase = 0 AND j.run_at <= :now
  AND ({condition})
ORDER BY j.run_at, j.id
LIMIT :share

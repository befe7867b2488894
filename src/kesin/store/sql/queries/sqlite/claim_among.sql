SELECT {columns}
FROM job j
CROSS JOIN job_body b ON b.id = j.id
WHERE j.id IN (SELECT value FROM json_each(:ids)) AND j.queue = :queue AND j.phase = 0
  AND j.run_at <= :now AND (:tenant IS NULL OR j.tenant = :tenant)
  AND NOT EXISTS (
    SELECT 1 FROM paused p WHERE p.queue = :queue AND p.tenant IN ('', j.tenant))
  AND ({condition})
ORDER BY j.priority DESC, j.run_at, j.id
LIMIT :limit

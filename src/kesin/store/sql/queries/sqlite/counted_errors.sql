SELECT j.state, j.error_code, count(*) AS n
FROM job j INDEXED BY job_failure
WHERE j.queue = :queue AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
  AND {owned}
  {filters}
GROUP BY j.state, j.error_code

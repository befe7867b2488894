SELECT j.state, j.error_code, count(*) AS n
FROM {schema}.job j
WHERE j.queue = %(queue)s AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
  AND {owned}
  {filters}
GROUP BY j.state, j.error_code

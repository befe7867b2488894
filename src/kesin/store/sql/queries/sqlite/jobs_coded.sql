WITH found AS MATERIALIZED (
  SELECT k.id
  FROM json_each(:codes) w
  CROSS JOIN job k ON k.id IN (
    SELECT j.id
    FROM job j INDEXED BY job_error
    WHERE j.queue = :queue AND j.error_code = w.value AND j.error_code IS NOT NULL
      AND j.id {beyond} :cursor
      AND {wanted}
      {filters}
    ORDER BY j.id {order}
    LIMIT :limit)
  ORDER BY k.id {order}
  LIMIT :limit
)
SELECT {columns}
FROM found
CROSS JOIN job j ON j.id = found.id
CROSS JOIN job_body b ON b.id = found.id
ORDER BY j.id {order}

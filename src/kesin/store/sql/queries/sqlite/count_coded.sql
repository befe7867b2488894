SELECT coalesce(sum(fits), 0), count(*) FROM (
  SELECT TRUE {filters} AND {wanted} AS fits
  FROM json_each(:codes) w
  CROSS JOIN job j INDEXED BY job_error
    ON j.queue = :queue AND j.error_code = w.value AND j.error_code IS NOT NULL
    AND j.id > :above AND j.id < :below
  LIMIT :most)

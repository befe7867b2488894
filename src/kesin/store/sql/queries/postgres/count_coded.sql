SELECT count(*) FILTER (WHERE fits), count(*) FROM (
  SELECT c.fits
  FROM unnest(%(codes)s::text[]) AS w(code)
  CROSS JOIN LATERAL (
    SELECT TRUE {filters} AND {wanted} AS fits
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.error_code = w.code AND j.error_code IS NOT NULL
      AND j.id > %(above)s::uuid AND j.id < %(below)s::uuid
    ORDER BY j.error_code, j.id
    LIMIT %(most)s
  ) c
  LIMIT %(most)s) seen

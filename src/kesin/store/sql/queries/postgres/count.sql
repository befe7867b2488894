WITH pairs AS MATERIALIZED (
  {pairs}
)
SELECT count(*) FILTER (WHERE fits), count(*) FROM (
  SELECT c.fits
  FROM pairs p
  CROSS JOIN LATERAL (
    SELECT TRUE {filters} AS fits
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.state BETWEEN p.state AND p.state  -- as in jobs.sql
      AND j.id > %(above)s::uuid AND j.id < %(below)s::uuid
    ORDER BY j.id
    LIMIT %(most)s
  ) c
  WHERE {wanted}
  UNION ALL
  (SELECT TRUE {filters}
   FROM {schema}.job j
   WHERE j.queue = %(queue)s AND j.phase = 1
     AND j.id > %(above)s::uuid AND j.id < %(below)s::uuid
     AND {owned}
   ORDER BY j.id
   LIMIT %(most)s)
  LIMIT %(most)s) seen

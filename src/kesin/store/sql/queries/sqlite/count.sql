WITH pairs AS MATERIALIZED (
  {pairs}
)
SELECT coalesce(sum(fits), 0), count(*) FROM (
  SELECT TRUE {filters} AS fits
  FROM pairs p
  CROSS JOIN job j INDEXED BY job_state
    ON j.queue = :queue AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
    AND j.id > :above AND j.id < :below
  WHERE {wanted}
  UNION ALL
  SELECT TRUE {filters}
  FROM job j INDEXED BY job_owned
  WHERE j.queue = :queue AND j.phase = 1 AND j.id > :above AND j.id < :below
    AND {owned}
  LIMIT :most)

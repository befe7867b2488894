pick AS MATERIALIZED (
  SELECT j.id
  FROM {schema}.job j
  WHERE j.id = ANY(%(ids)s::uuid[]) AND j.queue = %(queue)s AND j.phase = 0
    AND j.run_at <= (SELECT t FROM clock)
    AND NOT EXISTS (
      SELECT 1 FROM {schema}.paused p
      WHERE p.queue = %(queue)s AND p.tenant IN ('', j.tenant))
    AND ({condition})
  ORDER BY j.priority DESC, j.run_at, j.id
  LIMIT %(limit)s
  {lock}
)

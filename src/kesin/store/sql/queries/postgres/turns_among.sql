turns AS (
  SELECT DISTINCT j.tenant FROM {schema}.job j
  WHERE j.id = ANY(%(ids)s::uuid[]) AND j.queue = %(queue)s AND j.phase = 0
)

SELECT j.id::text, j.state
FROM unnest(%(ids)s::uuid[]) AS i(id)
CROSS JOIN LATERAL (
  SELECT j.id, j.queue, j.state FROM {schema}.job j WHERE j.id = i.id OFFSET 0
) j
WHERE j.queue = %(queue)s

SELECT {columns}
FROM unnest(%(ids)s::uuid[]) AS i(id)
CROSS JOIN LATERAL (SELECT j.* FROM {schema}.job j WHERE j.id = i.id OFFSET 0) j
CROSS JOIN LATERAL (
  SELECT b.dedup_key, b.payload, b.once FROM {schema}.job_body b WHERE b.id = i.id OFFSET 0
) b
WHERE j.queue = %(queue)s AND j.id {beyond} %(cursor)s::uuid
  AND {wanted}
  {filters}
ORDER BY j.id {order}
LIMIT %(limit)s

WITH found AS MATERIALIZED (
  SELECT k.id
  FROM unnest(%(codes)s::text[]) AS c(code)
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.error_code = c.code AND j.error_code IS NOT NULL
      AND j.id {beyond} %(cursor)s::uuid
      AND {wanted}
      {filters}
    ORDER BY j.error_code {order}, j.id {order}
    LIMIT %(limit)s
  ) k
  ORDER BY k.id {order}
  LIMIT %(limit)s
)
SELECT {columns}
FROM found
CROSS JOIN LATERAL (SELECT j.* FROM {schema}.job j WHERE j.id = found.id OFFSET 0) j
CROSS JOIN LATERAL (
  SELECT b.dedup_key, b.payload, b.once FROM {schema}.job_body b WHERE b.id = found.id OFFSET 0
) b
ORDER BY j.id {order}

WITH RECURSIVE {clock},
{due}
SELECT {columns}
FROM pick
CROSS JOIN LATERAL (SELECT j.* FROM {schema}.job j WHERE j.id = pick.id OFFSET 0) j
CROSS JOIN LATERAL (
  SELECT b.dedup_key, b.payload, b.once FROM {schema}.job_body b WHERE b.id = pick.id OFFSET 0
) b
ORDER BY j.priority DESC, j.run_at, j.id

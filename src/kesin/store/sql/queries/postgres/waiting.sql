WITH {clock}
SELECT 'due', '', (
  SELECT min(d.run_at)
  FROM unnest(ARRAY[2, 1, 0, -1]) AS l(priority)
  CROSS JOIN LATERAL (
    SELECT j.run_at FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.tenant = %(tenant)s AND j.phase = 0
      AND j.priority = l.priority AND j.run_at <= (SELECT t FROM clock)
    ORDER BY j.run_at LIMIT 1) d)
UNION ALL
SELECT 'first', w.state, (
  SELECT j.created_at FROM {schema}.job j
  WHERE j.queue = %(queue)s AND j.tenant = %(tenant)s AND j.phase <> 1
    AND j.state >= w.state AND j.state <= w.state  -- of an equality it would walk all jobs by id
  ORDER BY j.state, j.id LIMIT 1)
FROM unnest(%(states)s::text[]) AS w(state)
UNION ALL
SELECT 'over', '', (
  SELECT count(*) FROM {schema}.job j
  WHERE j.queue = %(queue)s AND j.phase = 1 AND j.tenant = %(tenant)s
    AND j.lease_until <= (SELECT t FROM clock))
UNION ALL
SELECT 'aging', '', (
  SELECT count(*) FILTER (WHERE a.tenant = %(tenant)s)
  FROM (
    SELECT j.tenant FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.phase = 0 AND j.stamp_1 IS NOT NULL
      AND j.stamp_1 < %(aged)s::bigint
    ORDER BY j.stamp_1 LIMIT 100000
  ) a)

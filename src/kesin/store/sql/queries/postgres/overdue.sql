WITH RECURSIVE {clock},
tenants AS (
  {tenants}
)
SELECT
  (SELECT min(d.run_at)
   FROM tenants t
   CROSS JOIN unnest(ARRAY[2, 1, 0, -1]) AS l(priority)
   CROSS JOIN LATERAL (
     SELECT j.run_at FROM {schema}.job j
     WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0 AND j.priority = l.priority
       AND j.run_at <= (SELECT t FROM clock)
     ORDER BY j.run_at LIMIT 1
   ) d
   WHERE %(oldest)s),
  (SELECT count(*) FROM {schema}.job j
   WHERE j.queue = %(queue)s AND j.phase = 1 AND j.lease_until <= (SELECT t FROM clock)),
  (SELECT t FROM clock)

WITH {clock},
pairs AS MATERIALIZED (
  {pairs}
),
pick AS MATERIALIZED (
  SELECT c.id
  FROM pairs p
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1
      AND j.state BETWEEN p.state AND p.state  -- as in jobs.sql
      AND j.id < %(before)s::uuid
      AND {condition}
      AND (%(min_age_us)s = 0 OR j.moved_at <= (SELECT t FROM clock) - %(min_age_us)s)
    ORDER BY j.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
  ) c
  WHERE p.state IN {states}
  LIMIT %(limit)s
)
{action}
 WHERE j.id = ANY(ARRAY(SELECT id FROM pick))
RETURNING j.id::text

WITH {clock},
pick AS MATERIALIZED (
  SELECT c.id
  FROM (VALUES {states}) AS p(state)
  CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.state = p.state AND j.finished_at IS NOT NULL
      AND {access}
      AND {condition}
      AND (%(min_age_us)s = 0 OR j.moved_at <= (SELECT t FROM clock) - %(min_age_us)s)
    ORDER BY j.finished_at, j.id
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
  ) c
  LIMIT %(limit)s
)
{action}
 WHERE j.id = ANY(ARRAY(SELECT id FROM pick))
RETURNING j.id::text

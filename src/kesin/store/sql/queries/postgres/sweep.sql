WITH {clock},
pick AS MATERIALIZED (
  SELECT j.id
  FROM {schema}.job j
  WHERE j.queue = %(queue)s AND {access}
    AND {condition}
    AND (%(min_age_us)s = 0 OR j.moved_at <= (SELECT t FROM clock) - %(min_age_us)s)
  ORDER BY {order}
  LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
)
{action}
 WHERE j.id = ANY(ARRAY(SELECT id FROM pick))
RETURNING j.id::text

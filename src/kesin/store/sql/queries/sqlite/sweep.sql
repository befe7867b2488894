{action}
 WHERE j.id IN (
  SELECT j.id
  FROM job j{index}
  WHERE j.queue = :queue AND {access}
    AND {condition}
    AND (:min_age_us = 0 OR j.moved_at <= :now - :min_age_us)
  ORDER BY {order}
  LIMIT :limit)
RETURNING id

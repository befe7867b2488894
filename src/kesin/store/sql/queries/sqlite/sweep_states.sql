WITH pairs AS MATERIALIZED (
  {pairs}
)
{action}
 WHERE id IN (
  SELECT c.id
  FROM pairs p
  CROSS JOIN job c ON p.state IN {states} AND c.id IN (
    SELECT j.id
    FROM job j
    WHERE j.queue = :queue AND j.tenant = p.tenant AND j.state = p.state AND j.phase <> 1 AND j.id < :before
      AND {condition}
      AND (:min_age_us = 0 OR j.moved_at <= :now - :min_age_us)
    ORDER BY j.id
    LIMIT :limit)
  LIMIT :limit)
RETURNING id

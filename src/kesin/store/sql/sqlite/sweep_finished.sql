WITH p(state) AS MATERIALIZED (VALUES {states})
{action}
 WHERE id IN (
  SELECT c.id
  FROM p
  CROSS JOIN job c ON c.id IN (
    SELECT j.id
    FROM job j INDEXED BY job_finished
    WHERE j.queue = :queue AND j.state = p.state AND j.finished_at IS NOT NULL
      AND {access}
      AND {condition}
      AND (:min_age_us = 0 OR j.moved_at <= :now - :min_age_us)
    ORDER BY j.finished_at, j.id
    LIMIT :limit)
  LIMIT :limit)
RETURNING id

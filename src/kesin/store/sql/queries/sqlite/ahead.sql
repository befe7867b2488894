SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM job j
    WHERE j.queue = :queue AND j.phase = 0 AND (j.run_at, j.id) < (me.run_at, me.id)
    LIMIT :most))
FROM job me
WHERE me.id = :id AND me.queue = :queue AND me.phase = 0

SELECT (
  SELECT count(*) FROM (
    SELECT 1 FROM {schema}.job j
    WHERE j.queue = %(queue)s AND j.phase = 0 AND (j.run_at, j.id) < (me.run_at, me.id)
    LIMIT %(most)s) AS before)
FROM {schema}.job me
WHERE me.id = %(id)s::uuid AND me.queue = %(queue)s AND me.phase = 0

WITH RECURSIVE {clock},
{due},
moved AS (
  UPDATE {schema}.job j
   SET {assignments}
  WHERE j.id = ANY(ARRAY(SELECT id FROM pick))
  RETURNING j.*
)
SELECT {columns}
FROM moved j
CROSS JOIN LATERAL (
  SELECT b.dedup_key, b.payload, b.once FROM {schema}.job_body b WHERE b.id = j.id OFFSET 0
) b
ORDER BY j.priority DESC, {due_at}, j.id

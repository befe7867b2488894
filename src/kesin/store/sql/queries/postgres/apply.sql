WITH {clock},
input AS MATERIALIZED (
  {input}
),
judged AS MATERIALIZED (
  SELECT i.*, j.verdict, j.state, j.seq, j.owner
  FROM input i
  LEFT JOIN LATERAL (
    SELECT {verdict} AS verdict, j.state, j.seq, j.tenant AS owner
    FROM {schema}.job j
    WHERE j.id = i.id AND j.queue = %(queue)s
      AND (%(tenants)s::text[] IS NULL OR j.tenant = ANY(%(tenants)s::text[]))
    FOR NO KEY UPDATE
  ) j ON TRUE
),
moved AS (
  UPDATE {schema}.job j
   SET {assignments}
  FROM judged i
  WHERE j.id = i.id AND i.verdict IN {chosen}
  RETURNING j.id, j.state, j.seq
)
SELECT i.ord, coalesce(i.verdict, 'unknown'), coalesce(m.state, i.state), coalesce(m.seq, i.seq), i.owner
FROM judged i LEFT JOIN moved m ON m.id = i.id

WITH {clock},
input AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(%(items)s::jsonb) AS r(
    ord integer, id uuid, token integer, error_code text, error_category text, error_message text,
    result text, run_at bigint, payload text, max_attempts integer, note text,
    stamp_1 bigint, stamp_2 bigint, stamp_3 bigint, stamp_4 bigint)
),
judged AS MATERIALIZED (
  SELECT i.*, j.verdict, j.state, j.seq, j.tenant
  FROM input i
  LEFT JOIN LATERAL (
    SELECT {verdict} AS verdict, j.state, j.seq, j.tenant
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
    AND j.id = ANY(ARRAY(SELECT id FROM judged WHERE verdict IN {chosen}))
  RETURNING j.id, j.state, j.seq
),
noted AS (
  INSERT INTO {schema}.note (queue, tenant, job_id, at, kind, actor, details)
  SELECT %(queue)s, i.tenant, i.id, (SELECT t FROM clock), 'stale', %(actor)s, {call}
  FROM judged i WHERE i.verdict = 'stale'
)
SELECT i.ord, coalesce(i.verdict, 'unknown'), coalesce(m.state, i.state), coalesce(m.seq, i.seq)
FROM judged i LEFT JOIN moved m ON m.id = i.id

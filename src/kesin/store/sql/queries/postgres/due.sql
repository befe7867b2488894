{turns},
levels AS MATERIALIZED (
  SELECT unnest(CASE WHEN EXISTS (
      SELECT 1 FROM {schema}.job j WHERE j.queue = %(queue)s AND j.phase = 0 AND j.priority <> 0)
    THEN ARRAY[2, 1, 0, -1] ELSE ARRAY[0] END)::smallint AS priority
),
open AS MATERIALIZED (
  SELECT t.tenant, row_number() OVER () AS nth
  FROM turns t
  WHERE t.tenant IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM {schema}.paused p WHERE p.queue = %(queue)s AND p.tenant IN ('', t.tenant))
    AND (
      SELECT TRUE FROM levels l CROSS JOIN LATERAL (
        SELECT 1 FROM {schema}.job j
        WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0
          AND j.priority = l.priority AND j.run_at <= (SELECT t FROM clock)
        ORDER BY j.run_at LIMIT 1) d
      LIMIT 1)
),
share AS MATERIALIZED (
  SELECT %(limit)s / greatest(count(*), 1) AS n, mod(%(limit)s, greatest(count(*), 1)) AS more
  FROM (SELECT 1 FROM open LIMIT %(limit)s) served
),
pick AS MATERIALIZED (
  SELECT c.id
  FROM open t
  CROSS JOIN LATERAL (
    SELECT d.id
    FROM levels l
    CROSS JOIN LATERAL (
      SELECT j.id
      FROM {schema}.job j
      WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0
        AND j.priority = l.priority AND j.run_at <= (SELECT t FROM clock)
        AND ({condition})
      ORDER BY j.run_at, j.id
      LIMIT (SELECT n FROM share) + CASE WHEN t.nth <= (SELECT more FROM share) THEN 1 ELSE 0 END
      {lock}
    ) d
    LIMIT (SELECT n FROM share) + CASE WHEN t.nth <= (SELECT more FROM share) THEN 1 ELSE 0 END
  ) c
  LIMIT %(limit)s
)

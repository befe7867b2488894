{turns},
levels AS MATERIALIZED (
  SELECT unnest(CASE WHEN EXISTS (
      SELECT 1 FROM {schema}.job j WHERE j.queue = %(queue)s AND j.phase = 0 AND j.priority <> 0)
    THEN ARRAY[2, 1, 0, -1] ELSE ARRAY[0] END)::smallint AS priority
),
{numbers}
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
    {open_to}
),
share AS MATERIALIZED (
  SELECT {share}, {most} AS most
  {served}
),
pick AS MATERIALIZED (
  SELECT c.id, c.tenant, {slot} AS slot
  FROM (
    SELECT d.*
    FROM open t
    CROSS JOIN LATERAL (
      SELECT h.n + CASE WHEN t.nth <= h.more THEN 1 ELSE 0 END AS n FROM share h
    ) s
    {allowance}
    CROSS JOIN LATERAL (
      SELECT e.*, row_number() OVER () AS nth, {tenant_slots} AS slots
      FROM (
        SELECT d.*
        FROM levels l
        CROSS JOIN LATERAL (
          SELECT j.id, j.tenant, j.priority, j.run_at
          FROM {schema}.job j
          WHERE j.queue = %(queue)s AND j.tenant = t.tenant AND j.phase = 0
            AND j.priority = l.priority AND j.run_at <= (SELECT t FROM clock)
            AND ({condition}){among}
          ORDER BY j.run_at, j.id
          LIMIT {allowed}
          {lock}
        ) d
        LIMIT {allowed}
      ) e
    ) d
    {order}
    LIMIT (SELECT most FROM share)
  ) c
  LIMIT %(limit)s
){written}

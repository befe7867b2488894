-- What due_limited.sql and its parts have gaps for; each begins at its name.

-- name: queue_slots
numbers AS MATERIALIZED (SELECT {free} AS slots),

-- name: tenant_slots
CROSS JOIN LATERAL (SELECT {free} AS slots OFFSET 0) f

-- name: free
coalesce((SELECT array_agg(g.slot)
  FROM (SELECT {slots} - {used} AS n OFFSET 0) room
  CROSS JOIN LATERAL (SELECT n.slot
    FROM (SELECT f.*, count(*) OVER () AS free FROM ({free}) f OFFSET 0) n {locked}
    LIMIT greatest(least({wanted}, room.n), 0)) g), ARRAY[]::text[])

-- name: locked
WHERE n.free > room.n OR pg_try_advisory_xact_lock(
  hashtextextended('{schema}:slots:' || %(queue)s, 0)
  # (hashtext({tenant})::bigint + (n.n - 1) * {blocks} / {most} & {locks}))

-- name: equal_share
{most} / greatest(count(*), 1) AS n, mod({most}, greatest(count(*), 1)) AS more

-- name: meter
{schema}.meter m WHERE m.queue = %(queue)s AND m.tenant = {tenant} AND m.move = {move}

-- name: tenant_meter
LEFT JOIN LATERAL (SELECT m.free_at FROM {meter} {lock}) k ON TRUE
CROSS JOIN LATERAL (SELECT coalesce(k.free_at, 0) AS free_at
  WHERE k.free_at IS NOT NULL OR NOT EXISTS (SELECT 1 FROM {meter})
  OFFSET 0) m

-- name: since
CASE WHEN {free_at} > (SELECT t FROM clock) + {ahead} THEN (SELECT t FROM clock)
  ELSE least(greatest({free_at}, (SELECT t FROM clock)), (SELECT t FROM clock) + {per_us}) END

-- name: left
(((SELECT t FROM clock) + {per_us} - {since}) * {claims} / {per_us})

-- name: after
{since} + ({taken} * {per_us} + {to_round}) / {claims}

-- name: chosen
,
chosen AS MATERIALIZED (
  SELECT jsonb_object_agg(p.id::text, p.slot) AS slots FROM pick p
)

-- name: spent
,
spent AS (
  UPDATE {schema}.meter m SET free_at = {again}
  FROM (SELECT tenant, count(*) AS n FROM pick GROUP BY tenant) p
  WHERE m.queue = %(queue)s AND m.tenant = p.tenant AND m.move = {move}
),
begun AS (
  INSERT INTO {schema}.meter (queue, tenant, move, free_at)
  SELECT %(queue)s, p.tenant, {move}, {first}
  FROM (SELECT tenant, count(*) AS n FROM pick GROUP BY tenant) p
  WHERE NOT EXISTS (SELECT 1 FROM {meter})
)

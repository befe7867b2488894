WITH {clock},
input AS MATERIALIZED (
  {input}
),
bodies AS (
  INSERT INTO {schema}.job_body (id, queue, tenant, dedup_key, held_key, payload, once)
  SELECT i.id, %(queue)s, i.tenant, i.dedup_key, {held_key}, i.payload, i.once
  FROM input i
  WHERE i.dedup_key IS NULL OR (
    SELECT h.id FROM {schema}.job_body h
    WHERE h.queue = %(queue)s AND h.tenant = i.tenant AND h.held_key = i.dedup_key
    LIMIT 1) IS NULL
  ON CONFLICT (queue, tenant, held_key) WHERE held_key IS NOT NULL DO NOTHING
  RETURNING id
),
jobs AS (
  INSERT INTO {schema}.job (id, queue, tenant, state, phase, move, actor, seq, max_attempts, salt,
    keyed, note, created_at, moved_at, run_at, priority, stamp_1, stamp_2,
    stamp_3, stamp_4)
  SELECT i.id, %(queue)s, i.tenant, {state}, {phase}, {move}, %(actor)s, 1, i.max_attempts, i.salt,
    i.dedup_key IS NOT NULL, i.note, c.t, c.t, coalesce(i.run_at, c.t), i.priority, i.stamp_1, i.stamp_2, i.stamp_3, i.stamp_4
  FROM input i CROSS JOIN clock c
  WHERE i.id IN (SELECT id FROM bodies)
)
SELECT id::text FROM bodies

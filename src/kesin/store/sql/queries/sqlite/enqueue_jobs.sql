WITH i AS MATERIALIZED (
  {input}
)
INSERT INTO job (id, queue, tenant, state, phase, move, actor, seq, max_attempts, salt, keyed, note,
  created_at, moved_at, run_at, priority, stamp_1, stamp_2, stamp_3, stamp_4)
SELECT i.id, :queue, i.tenant, {state}, {phase}, {move}, :actor, 1, i.max_attempts, i.salt,
  i.dedup_key IS NOT NULL, i.note, :now, :now, coalesce(i.run_at, :now), i.priority,
  i.stamp_1, i.stamp_2, i.stamp_3, i.stamp_4
FROM i
WHERE i.dedup_key IS NULL OR NOT EXISTS (
  SELECT 1 FROM job_body h
  WHERE h.queue = :queue AND h.tenant = i.tenant AND h.held_key = i.dedup_key)
ORDER BY i.ord
RETURNING id

WITH {clock},
input AS MATERIALIZED (
  {input}
),
held AS MATERIALIZED (
  SELECT j.id, j.lease, 'kept' AS verdict
  FROM input i
  CROSS JOIN LATERAL (
    SELECT j.id, greatest(j.lease_until, least((SELECT t FROM clock) + %(lease_us)s,
                                               j.claimed_at + {max_run_us})) AS lease
    FROM {schema}.job j
    WHERE j.id = i.id AND j.queue = %(queue)s AND j.phase = 1 AND j.claim_seq = i.token
      AND j.claimed_at + {max_run_us} > (SELECT t FROM clock)
    FOR NO KEY UPDATE
  ) j
)
UPDATE {schema}.job j SET lease_until = h.lease
FROM held h
WHERE j.id = h.id AND h.verdict = 'kept'
RETURNING j.id::text

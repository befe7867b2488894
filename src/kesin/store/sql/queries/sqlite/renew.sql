WITH i AS MATERIALIZED (
  {input}
)
UPDATE job AS j
   SET lease_until = max(j.lease_until, min(:now + :lease_us, j.claimed_at + {max_run_us}))
  FROM i
 WHERE j.id = i.id AND j.queue = :queue AND j.phase = 1 AND j.claim_seq = i.token
   AND j.claimed_at + {max_run_us} > :now
RETURNING id

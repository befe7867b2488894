WITH i AS MATERIALIZED (
  {input}
)
UPDATE job AS j
   SET {assignments}
  FROM i
 WHERE j.id = i.id AND j.queue = :queue
   AND (:tenants IS NULL OR j.tenant IN (SELECT value FROM json_each(:tenants)))
   AND {which} IS NOT NULL
RETURNING id, state, seq

UPDATE job AS j
   SET {assignments}
 WHERE j.id IN (SELECT value FROM json_each(:items)) AND j.queue = :queue AND j.seq = :same_token
   AND (:tenants IS NULL OR j.tenant IN (SELECT value FROM json_each(:tenants)))
   AND {which} IS NOT NULL

WITH {clock}
UPDATE {schema}.job j
   SET {assignments}
 WHERE j.id = ANY(ARRAY(
         SELECT k.id FROM {schema}.job k
         WHERE k.id = ANY(ARRAY(
           SELECT r.id::uuid FROM jsonb_array_elements_text(%(items)s::jsonb) AS r(id)))
         ORDER BY k.id FOR NO KEY UPDATE))
   AND j.queue = %(queue)s
   AND (%(tenants)s::text[] IS NULL OR j.tenant = ANY(%(tenants)s::text[]))
   AND {which} IS NOT NULL
RETURNING j.id::text, j.state, j.seq

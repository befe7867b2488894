WITH pairs AS MATERIALIZED (
  {pairs}
),
owners AS MATERIALIZED (
  SELECT DISTINCT p.tenant FROM pairs p WHERE {wanted}
)
SELECT st.job_id
FROM owners o
CROSS JOIN LATERAL (
  SELECT st.job_id
  FROM {schema}.search_term st
  WHERE st.queue = %(queue)s AND st.tenant = o.tenant
    AND st.term >= %(term)s AND st.term < %(after_term)s
  ORDER BY st.tenant, st.term
  LIMIT %(most)s
) st
LIMIT %(most)s

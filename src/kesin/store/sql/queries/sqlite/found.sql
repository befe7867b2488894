WITH pairs AS MATERIALIZED (
  {pairs}
),
owners AS MATERIALIZED (
  SELECT DISTINCT p.tenant FROM pairs p WHERE {wanted}
)
SELECT st.job_id
FROM owners o
CROSS JOIN search_term st INDEXED BY search_found
  ON st.queue = :queue AND st.tenant = o.tenant AND st.term >= :term AND st.term < :after_term
LIMIT :most

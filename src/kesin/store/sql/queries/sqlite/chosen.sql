WITH i AS MATERIALIZED (
  {input}
)
SELECT i.ord, {which}
FROM i
CROSS JOIN job AS j ON j.id = i.id

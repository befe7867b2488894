turns AS (
  SELECT n.tenant
  FROM (SELECT DISTINCT unnest(%(tenants)s::text[]) COLLATE "C" AS tenant) n
  ORDER BY n.tenant <= %(after)s, n.tenant
)

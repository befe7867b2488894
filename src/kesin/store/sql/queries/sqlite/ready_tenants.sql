WITH RECURSIVE
tenants(tenant) AS (
  {tenants}
)
SELECT tenant FROM tenants WHERE tenant IS NOT NULL LIMIT :limit

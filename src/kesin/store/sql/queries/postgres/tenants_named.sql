SELECT DISTINCT unnest(%(tenants)s::text[]) AS tenant

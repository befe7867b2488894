SELECT DISTINCT value FROM json_each(:tenants) ORDER BY value <= :after, value

SELECT DISTINCT value FROM json_each(:tenants)

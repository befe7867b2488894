SELECT r.*{same} FROM jsonb_to_recordset(%(items)s::jsonb) AS r(ord integer{columns})

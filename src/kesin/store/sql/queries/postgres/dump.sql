-- What a dump of a schema asks the server; each begins at its name.

-- name: size
SELECT coalesce(sum(pg_table_size(c.oid)), 0) FROM pg_class c
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'

-- name: tables
SELECT c.relname, array_agg(quote_ident(a.attname) ORDER BY a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
  AND a.attnum > 0 AND NOT a.attisdropped GROUP BY 1

-- name: other_connections
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
  AND application_name = %s AND pid <> pg_backend_pid()

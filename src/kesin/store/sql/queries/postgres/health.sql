SELECT
  current_setting('server_version'),
  pg_database_size(current_database()),
  coalesce((SELECT extract(epoch FROM max(now() - xact_start))::bigint
            FROM pg_stat_activity
            WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
              AND datname = current_database()), 0),
  coalesce((SELECT n_dead_tup FROM pg_stat_user_tables
            WHERE schemaname = %(schema)s AND relname = 'job'), 0)

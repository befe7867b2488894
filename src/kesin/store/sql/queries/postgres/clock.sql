clock AS MATERIALIZED (
  SELECT coalesce(%(now)s::bigint, (extract(epoch FROM now()) * 1000000)::bigint) AS t
)

SELECT tenant, state, error_code, category, retries, sum(n), min(since), min(next_at),
  max(latest), string_agg(part || ':' || n, ',')
FROM (
  SELECT tenant, state, error_code, category, retries, count(*) AS n, min(moved_at) AS since,
    min(next_at) AS next_at, max(moved_at) AS latest,
    CASE WHEN moved_at >= %(recent_from)s THEN (moved_at - %(recent_from)s) / %(period)s END AS part
  FROM (
    SELECT j.tenant, j.state, j.error_code, coalesce(j.error_category, '') AS category,
      {retries} AS retries, j.moved_at, {next_at} AS next_at
    FROM {job} j
    WHERE j.queue = %(queue)s AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
      AND j.state IN {states} AND {wanted} {filters}
    LIMIT %(most)s
  ) f
  GROUP BY tenant, state, error_code, category, retries, part
) p
GROUP BY tenant, state, error_code, category, retries

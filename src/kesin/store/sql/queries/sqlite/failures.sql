SELECT tenant, state, error_code, category, retries, sum(n), min(since), min(next_at),
  max(latest), group_concat(part || ':' || n)
FROM (
  SELECT tenant, state, error_code, category, retries, count(*) AS n, min(moved_at) AS since,
    min(next_at) AS next_at, max(moved_at) AS latest,
    CASE WHEN moved_at >= :recent_from THEN (moved_at - :recent_from) / :period END AS part
  FROM (
    SELECT j.tenant, j.state, j.error_code, coalesce(j.error_category, '') AS category,
      {retries} AS retries, j.moved_at, {next_at} AS next_at
    FROM {job} j INDEXED BY job_failure
    WHERE j.queue = :queue AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
      AND j.state IN {states} AND {wanted} {filters}
    LIMIT :most
  )
  GROUP BY tenant, state, error_code, category, retries, part
)
GROUP BY tenant, state, error_code, category, retries

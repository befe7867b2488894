SELECT tenant, state, error_code, category, retries, count(*), min(moved_at), min(next_at),
  sum(CASE WHEN moved_at >= :recent_from THEN 1 ELSE 0 END), max(moved_at)
FROM (
  SELECT j.tenant, j.state, j.error_code, coalesce(j.error_category, '') AS category,
    {retries} AS retries, j.moved_at, {next_at} AS next_at
  FROM {job} j INDEXED BY job_failure
  WHERE j.queue = :queue AND j.error_code IS NOT NULL AND j.phase IN (0, 2)
    AND j.state IN {states} AND {wanted} {filters}
  LIMIT :most
)
GROUP BY tenant, state, error_code, category, retries

SELECT 1 FROM job INDEXED BY job_prior
WHERE queue = :queue AND phase = 0 AND priority <> 0
LIMIT 1

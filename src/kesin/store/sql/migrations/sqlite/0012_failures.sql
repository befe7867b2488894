-- Jobs with an error that are not over, by state and code: what needs a person, and what is tried
-- again by itself. Jobs without an error have no entry, so that the plain way through a queue pays
-- nothing.
CREATE INDEX job_failure ON job (
  queue, state, tenant, error_code, error_category, phase, moved_at, run_at
) WHERE error_code IS NOT NULL AND phase IN (0, 2);

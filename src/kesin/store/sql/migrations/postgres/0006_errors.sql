-- Jobs by the code of their last error: a page of a rare code is found at once. Only jobs that have
-- one are in it, so a job that never fails costs nothing more.
CREATE INDEX job_error ON {schema}.job (queue, error_code, id) WHERE error_code IS NOT NULL;

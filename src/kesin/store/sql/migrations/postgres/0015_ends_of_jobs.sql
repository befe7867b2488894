-- Jobs that carry the time of their own end, in the fourth stamp: the sweeper finds those past it.
CREATE INDEX job_ended ON {schema}.job (queue, stamp_4, id) WHERE phase = 0 AND stamp_4 IS NOT NULL;

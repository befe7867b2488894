WITH i AS MATERIALIZED (
  {input}
)
INSERT INTO note (queue, tenant, job_id, at, kind, actor, details)
SELECT :queue, i.tenant, i.id, :now, :kind, :actor, i.note FROM i

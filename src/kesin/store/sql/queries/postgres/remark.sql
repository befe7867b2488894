WITH {clock},
i AS MATERIALIZED (
  {input}
)
INSERT INTO {schema}.note (queue, tenant, job_id, at, kind, actor, details)
SELECT %(queue)s, i.tenant, i.id, (SELECT t FROM clock), %(kind)s, %(actor)s, i.note FROM i

SELECT 'due', '', (
  SELECT min((SELECT min(j.run_at) FROM job j
              WHERE j.queue = :queue AND j.tenant = :tenant AND j.phase = 0
                AND j.priority = l.value AND j.run_at <= :now))
  FROM json_each('[2, 1, 0, -1]') l)
UNION ALL
SELECT 'first', w.value, (
  SELECT j.created_at FROM job j INDEXED BY job_state
  WHERE j.queue = :queue AND j.tenant = :tenant AND j.state = w.value AND j.phase <> 1
  ORDER BY j.id LIMIT 1)
FROM json_each(:states) w
UNION ALL
SELECT 'over', '', (
  SELECT count(*) FROM job j INDEXED BY job_owned
  WHERE j.queue = :queue AND j.phase = 1 AND j.tenant = :tenant AND j.lease_until <= :now)
UNION ALL
SELECT 'aging', '', (
  SELECT count(*) FROM job j INDEXED BY job_aged
  WHERE j.queue = :queue AND j.phase = 0 AND j.stamp_1 IS NOT NULL AND j.stamp_1 < :aged
    AND j.tenant = :tenant)

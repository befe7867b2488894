SELECT 1
WHERE NOT EXISTS (
    SELECT 1 FROM paused p WHERE p.queue = :queue AND p.tenant IN ('', :tenant))
  AND EXISTS (
    SELECT 1 FROM json_each(:levels) l
    WHERE EXISTS (
      SELECT 1 FROM job j
      WHERE j.queue = :queue AND j.tenant = :tenant AND j.phase = 0 AND j.priority = l.value
        AND j.run_at <= :now))

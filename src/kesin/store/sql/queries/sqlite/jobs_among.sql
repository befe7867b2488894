SELECT {columns}
FROM json_each(:ids) i
CROSS JOIN job j ON j.id = i.value
CROSS JOIN job_body b ON b.id = j.id
WHERE j.queue = :queue AND j.id {beyond} :cursor
  AND {wanted}
  {filters}
ORDER BY j.id {order}
LIMIT :limit

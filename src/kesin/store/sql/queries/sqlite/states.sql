SELECT j.id, j.state
FROM json_each(:ids) i
CROSS JOIN job j ON j.id = i.value
WHERE j.queue = :queue

-- Parts of the conditions of moves, for both databases; each begins at its name.

-- name: has_parent
EXISTS (SELECT 1 FROM {parent} p JOIN {job} k ON k.id = p.parent
  LEFT JOIN {state} s ON s.queue = k.queue AND s.name = k.state
  WHERE p.child = j.id AND NOT p.done AND {how})

-- name: no_child_waits
NOT EXISTS (SELECT 1 FROM {parent} p JOIN {job} c ON c.id = p.child
  LEFT JOIN {state} s ON s.queue = c.queue AND s.name = c.state
  WHERE p.parent = j.id AND (c.phase NOT IN (2, 3) OR s.waits))

-- name: slots
(SELECT max(d.slots) FROM {declared} d WHERE d.queue = {queue} AND d.to_state = {to})

-- name: slot_rows
FROM {job} s WHERE s.queue = {queue} AND s.slot >= {first} AND s.slot < {end} AND {whose}

-- name: numbers_postgres
(SELECT generate_series(1, {most}) AS n)

-- name: numbers_sqlite
(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers
  WHERE n < {most}) SELECT n FROM numbers)

-- name: slot_unused
NOT EXISTS (SELECT 1 FROM {job} s WHERE s.queue = {queue} AND s.slot = {slot})

-- name: free_slots
SELECT {slot} AS slot{more} FROM {numbers} n
WHERE n.n <= {slots} AND {free} ORDER BY n.n

-- name: key_free
NOT EXISTS (SELECT 1 FROM {job_body} b JOIN {job_body} h ON h.queue = b.queue
  AND h.tenant = b.tenant AND h.held_key = b.dedup_key
  WHERE b.id = j.id AND h.id <> j.id)

-- name: finished_already
EXISTS (SELECT 1 FROM {event} e WHERE e.job_id = j.id AND e.seq > i.token
  AND e.move IN {names} AND NOT EXISTS (SELECT 1 FROM {event} c
  WHERE c.job_id = j.id AND c.seq > i.token AND c.seq < e.seq AND c.claim = 1))

-- What a copy between stores reads and deletes: the same statements for both databases.

-- name: job_versions
SELECT j.id{as_text}, j.seq, (SELECT count(*) FROM {note} n WHERE n.job_id = j.id)
FROM {job} j WHERE j.queue = :queue AND j.id > :cursor ORDER BY j.id LIMIT :limit

-- name: versions_of
SELECT j.id{as_text}, j.seq, (SELECT count(*) FROM {note} n WHERE n.job_id = j.id)
FROM {job} j WHERE j.queue = :queue AND j.id {among_ids}

-- name: count_waiting
SELECT count(DISTINCT c.id) FROM {parent} p
JOIN {job} c ON c.id = p.child
JOIN {job} j ON j.id = p.parent
JOIN {state} s ON s.queue = c.queue AND s.name = c.state AND s.waits
WHERE c.queue = :queue OR j.queue = :queue

-- name: count_claimed
SELECT count(*) FROM {job} WHERE queue = :queue AND phase = 1

-- name: drop_jobs
DELETE FROM {job} WHERE id {among_ids}

-- name: slots_taken
SELECT id{as_text}, slot FROM {job} WHERE queue = :queue AND slot IS NOT NULL

-- name: slot_holders
SELECT id{as_text} FROM {job} WHERE queue = :queue AND slot {among_names}

-- name: drop_counts
DELETE FROM {flow} WHERE queue = :queue

-- What stands beside the jobs: the same statements for both databases. Each begins at its name.
-- {among_ids} and the like are what a dialect writes differently; any other {name} is a table.

-- name: notes
SELECT job_id{as_text}, at, kind, actor, details FROM {note} WHERE job_id {among_ids} ORDER BY id

-- name: hold_parents
SELECT j.id FROM {job} j WHERE j.id {among_ids} ORDER BY j.id{keep_lock}

-- name: add_parents
INSERT INTO {parent} (child, parent, queue, done, news)
SELECT i.child, i.parent, :queue,
       j.phase IN (2, 3) AND NOT coalesce(s.waits, FALSE) AND coalesce(s.success, FALSE), {news}
FROM {pairs} i
JOIN {job} j ON j.id = i.parent
LEFT JOIN {state} s ON s.queue = j.queue AND s.name = j.state

-- name: hear
WITH heard AS MATERIALIZED (
  SELECT child, parent FROM {parent} WHERE queue = :queue AND news
  ORDER BY child LIMIT :limit{skip_locked}
)
UPDATE {parent} SET news = FALSE
WHERE (child, parent) IN (SELECT child, parent FROM heard)
RETURNING child{as_text}

-- name: undone
SELECT p.child{as_text}, max((
  SELECT CASE WHEN k.phase IN (2, 3) AND NOT coalesce(s.waits, FALSE) THEN 1 ELSE 0 END
  FROM {job} k LEFT JOIN {state} s ON s.queue = k.queue AND s.name = k.state
  WHERE k.id = p.parent))
FROM {parent} p WHERE p.child {among_ids} AND NOT p.done GROUP BY p.child

-- name: meters
SELECT tenant, free_at FROM {meter} WHERE queue = :queue ORDER BY free_at DESC, tenant LIMIT :limit

-- name: await_meter
SELECT 1 FROM {meter} WHERE queue = :queue AND tenant = :tenant FOR UPDATE

-- name: drop_meters
DELETE FROM {meter}
WHERE queue = :queue AND (tenant, move) IN (
  SELECT tenant, move FROM {meter}
  WHERE queue = :queue AND free_at < {now} - :back_us
  ORDER BY tenant LIMIT :limit{skip_locked})

-- name: put_listing
INSERT INTO {listing} (queue, title, search) VALUES (:queue, :title, :search)
ON CONFLICT (queue) DO UPDATE SET title = excluded.title, search = excluded.search

-- name: drop_terms
DELETE FROM {search_term} WHERE queue = :queue

-- name: put_progress
INSERT INTO {progress} (job_id, claim_seq, at, fraction, message)
SELECT j.id, j.claim_seq, {now}, :fraction, :message
FROM {job} j
WHERE j.id = :id AND j.queue = :queue AND j.phase = 1 AND j.claim_seq = :token
ON CONFLICT (job_id) DO UPDATE SET claim_seq = excluded.claim_seq,
  at = excluded.at, fraction = excluded.fraction, message = excluded.message
RETURNING 1

-- name: progress
SELECT p.job_id, p.at, p.fraction, p.message
FROM {progress} p
JOIN {job} j ON j.id = p.job_id AND j.claim_seq = p.claim_seq
WHERE p.job_id {among_ids} AND j.phase = 1 AND j.queue = :queue

-- name: add_note
INSERT INTO {note} (queue, tenant, job_id, at, kind, actor, details)
VALUES (:queue, :tenant, :job_id, {now}, :kind, :actor, :details)

-- name: pause
INSERT INTO {paused} (queue, tenant, at, actor, reason)
VALUES (:queue, :tenant, {now}, :actor, :reason)
ON CONFLICT DO NOTHING

-- name: resume
DELETE FROM {paused} WHERE queue = :queue AND tenant = :tenant RETURNING 1

-- name: schedules
SELECT name, definition, next_at FROM {schedule} WHERE queue = :queue ORDER BY name

-- name: hold_schedules
SELECT name, definition, next_at FROM {schedule}
WHERE queue = :queue AND name {among_names} ORDER BY name{skip_locked}

-- name: put_schedule
INSERT INTO {schedule} (queue, name, definition, next_at)
VALUES (:queue, :name, :definition, :next_at)
ON CONFLICT (queue, name) DO UPDATE
SET definition = excluded.definition, next_at = excluded.next_at

-- name: drop_schedules
DELETE FROM {schedule} WHERE queue = :queue AND name {among_names}

-- name: retire_state
UPDATE {state} SET retired_at = :at WHERE queue = :queue AND name = :state AND retired_at IS NULL

-- name: retire_moves
UPDATE {declared} SET retired_at = :at
WHERE queue = :queue AND to_state = :state AND retired_at IS NULL

-- name: add_move
INSERT INTO {declared} (queue, move, from_state, to_state, phase, claim, counts, base, returns,
  retries, mask, slot, holds_key, slots, slots_per, min_age_us)
VALUES (:queue, :move, :from_state, :to_state, :phase, :claim, :counts, :base, :returns,
  :retries, :mask, :slot, :holds_key, :slots, :slots_per, :min_age_us)

-- name: change_move
UPDATE {declared} SET mask = mask | :mask, min_age_us = :min_age_us, slots = :slots
WHERE queue = :queue AND move = :move AND from_state = :from_state AND to_state = :to_state

-- name: add_rules
INSERT INTO {rules} (queue, version, fingerprint, definition, virtual_time, declared_at)
VALUES (:queue, :version, :fingerprint, :definition, :virtual_time, :declared_at)

-- name: add_state
INSERT INTO {state} (queue, name, phase, success, waits)
SELECT :queue, :name, :phase, :success, :waits
WHERE NOT EXISTS (SELECT 1 FROM {state} WHERE queue = :queue AND name = :name)

-- name: put_definition
INSERT INTO {lifecycle} VALUES (:queue, {now}, :definition)
ON CONFLICT (queue) DO UPDATE SET definition = excluded.definition

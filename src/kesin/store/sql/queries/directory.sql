-- The directory tables: the same statements for both databases. Each begins at its name.

-- name: sites
SELECT id, name, channel, timezone, currency, settings, created_at, changed_at
FROM {site}
WHERE CAST(:id AS text) IS NULL OR id = CAST(:id AS text)
ORDER BY id

-- name: hold_site
UPDATE {site} SET changed_at = changed_at
WHERE id = :id
RETURNING id, name, channel, timezone, currency, settings, created_at, changed_at

-- name: add_site
INSERT INTO {site} (id, name, channel, timezone, currency, settings, created_at, changed_at)
VALUES (:id, :name, :channel, :timezone, :currency, :settings, :created_at, :changed_at)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: change_site
UPDATE {site}
SET name = :name, channel = :channel, timezone = :timezone, currency = :currency,
    settings = :settings, changed_at = :changed_at
WHERE id = :id
RETURNING id

-- name: keep_site
SELECT id FROM {site} WHERE id = :id{keep_lock}

-- name: drop_site
DELETE FROM {site} WHERE id = :id RETURNING id

-- name: people
SELECT name, password_hash, role, all_sites, sites, queues, created_at, changed_at, disabled_at
FROM {person}
WHERE CAST(:name AS text) IS NULL OR name = CAST(:name AS text)
ORDER BY name

-- name: hold_person
UPDATE {person} SET changed_at = changed_at
WHERE name = :name
RETURNING name, password_hash, role, all_sites, sites, queues, created_at, changed_at, disabled_at

-- name: add_person
INSERT INTO {person} (name, password_hash, role, all_sites, sites, queues, created_at, changed_at,
  disabled_at)
VALUES (:name, :password_hash, :role, :all_sites, :sites, :queues, :created_at, :changed_at,
  :disabled_at)
ON CONFLICT (name) DO NOTHING
RETURNING name

-- name: change_person
UPDATE {person}
SET password_hash = :password_hash, role = :role, all_sites = :all_sites, sites = :sites,
    queues = :queues, changed_at = :changed_at, disabled_at = :disabled_at
WHERE name = :name
RETURNING name

-- name: session
SELECT token_hash, person, created_at, used_at, expires_at, address
FROM {session}
WHERE token_hash = :token_hash

-- name: sessions_of
SELECT token_hash, person, created_at, used_at, expires_at, address
FROM {session}
WHERE person = :person
ORDER BY created_at

-- name: add_session
INSERT INTO {session} (token_hash, person, created_at, used_at, expires_at, address)
VALUES (:token_hash, :person, :created_at, :used_at, :expires_at, :address)
RETURNING token_hash

-- name: use_session
UPDATE {session} SET used_at = :used_at WHERE token_hash = :token_hash RETURNING token_hash

-- name: end_session
DELETE FROM {session} WHERE token_hash = :token_hash RETURNING token_hash

-- name: end_sessions_of
DELETE FROM {session} WHERE person = :person RETURNING token_hash

-- name: end_old_sessions
DELETE FROM {session} WHERE expires_at <= :now OR used_at <= :idle_since RETURNING token_hash

-- name: keys
SELECT id, secret_hash, name, scopes, site, created_at, created_by, expires_at, used_at, revoked_at
FROM {api_key}
WHERE CAST(:id AS text) IS NULL OR id = CAST(:id AS text)
ORDER BY created_at, id

-- name: add_key
INSERT INTO {api_key} (id, secret_hash, name, scopes, site, created_at, created_by, expires_at,
  used_at, revoked_at)
VALUES (:id, :secret_hash, :name, :scopes, :site, :created_at, :created_by, :expires_at,
  :used_at, :revoked_at)
ON CONFLICT (id) DO NOTHING
RETURNING id

-- name: use_key
UPDATE {api_key} SET used_at = :used_at WHERE id = :id RETURNING id

-- name: revoke_key
UPDATE {api_key} SET revoked_at = :revoked_at WHERE id = :id AND revoked_at IS NULL RETURNING id

-- name: hold_audit_head
UPDATE {audit_head} SET seq = seq WHERE id = 1 RETURNING seq, hash

-- name: begin_audit_head
INSERT INTO {audit_head} (id, seq, hash) VALUES (1, 0, :hash) ON CONFLICT DO NOTHING RETURNING id

-- name: move_audit_head
UPDATE {audit_head} SET seq = :seq, hash = :hash WHERE id = 1 RETURNING id

-- name: audit_head
SELECT seq, hash FROM {audit_head}

-- name: add_audit
INSERT INTO {audit} (at, actor, action, allowed, queue, site, target, details, request_id, address,
  seq, hash)
VALUES (:at, :actor, :action, :allowed, :queue, :site, :target, :details, :request_id, :address,
  :seq, :hash)
RETURNING id

-- name: audit_chain
SELECT id, at, actor, action, allowed, queue, site, target, details, request_id, address, seq, hash
FROM {audit}
WHERE id > :after
ORDER BY id
LIMIT :limit

-- name: audit
SELECT id, at, actor, action, allowed, queue, site, target, details, request_id, address
FROM {audit}
WHERE id < :before
  AND (CAST(:actor AS text) IS NULL OR actor = CAST(:actor AS text))
  AND (CAST(:action AS text) IS NULL OR action = CAST(:action AS text))
  AND (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text))
  AND (CAST(:site AS text) IS NULL OR site = CAST(:site AS text))
  AND (CAST(:target AS text) IS NULL OR target = CAST(:target AS text))
ORDER BY id DESC
LIMIT :limit

-- name: newest_audit
SELECT max(id) FROM {audit} WHERE id < :before

-- name: search_audit
SELECT id, at, actor, action, allowed, queue, site, target, details, request_id, address
FROM {audit}
WHERE id < :before AND id >= :since
  AND (CAST(:actor AS text) IS NULL OR lower(actor) LIKE CAST(:actor AS text) ESCAPE '!')
  AND (CAST(:action AS text) IS NULL OR lower(action) LIKE CAST(:action AS text) ESCAPE '!')
  AND (CAST(:queue AS text) IS NULL OR queue = CAST(:queue AS text))
  AND (CAST(:site AS text) IS NULL OR lower(site) LIKE CAST(:site AS text) ESCAPE '!')
  AND (CAST(:target AS text) IS NULL OR lower(target) LIKE CAST(:target AS text) ESCAPE '!')
ORDER BY id DESC
LIMIT :limit

-- name: prune_audit
DELETE FROM {audit}
WHERE id IN (
  SELECT id FROM {audit}
  WHERE id < coalesce(
    (SELECT id FROM {audit} WHERE +at >= :before ORDER BY id LIMIT 1), :end)
  ORDER BY id
  LIMIT :limit)
RETURNING id, at, actor, action, allowed, queue, site, target, details, request_id, address, seq,
  hash

-- name: secrets
SELECT name, sealed, changed_at, changed_by
FROM {secret}
WHERE CAST(:name AS text) IS NULL OR name = CAST(:name AS text)
ORDER BY name

-- name: put_secret
INSERT INTO {secret} (name, sealed, changed_at, changed_by)
VALUES (:name, :sealed, :changed_at, :changed_by)
ON CONFLICT (name) DO UPDATE
SET sealed = excluded.sealed, changed_at = excluded.changed_at, changed_by = excluded.changed_by
RETURNING name

-- name: reseal
UPDATE {secret} SET sealed = :sealed WHERE name = :name AND sealed = :before RETURNING name

-- name: drop_secret
DELETE FROM {secret} WHERE name = :name RETURNING name

-- name: facts
SELECT workload, site, name, value, changed_at
FROM {fact}
WHERE workload = :workload
  AND (CAST(:site AS text) IS NULL OR site = CAST(:site AS text))
  AND (CAST(:name AS text) IS NULL OR name = CAST(:name AS text))
ORDER BY site, name

-- name: fact_page
SELECT workload, site, name, value, changed_at
FROM {fact}
WHERE workload = :workload AND site = :site AND name > :after
ORDER BY name
LIMIT :most OFFSET :skip

-- name: put_fact
INSERT INTO {fact} (workload, site, name, value, changed_at)
VALUES (:workload, :site, :name, :value, :changed_at)
ON CONFLICT (workload, site, name) DO UPDATE
SET value = excluded.value, changed_at = excluded.changed_at
RETURNING name

-- name: hold_fact
INSERT INTO {fact} AS f (workload, site, name, value, changed_at)
VALUES (:workload, :site, :name, 'null', :now)
ON CONFLICT (workload, site, name) DO UPDATE SET changed_at = f.changed_at
RETURNING workload, site, name, value, changed_at

-- name: drop_fact
DELETE FROM {fact} WHERE workload = :workload AND site = :site AND name = :name RETURNING name

-- A job is a hash; these functions write it, its event, counter, key, slot and indexes.

local WHOLE = COLUMNS -- prepended by the store
local HEAVY = {payload = true, result = true, note = true, new_payload = true, error_message = true}
local NUMBER = {}
for _, name in ipairs(NUMBERS) do NUMBER[name] = true end
local LIGHT = {}
for _, name in ipairs(WHOLE) do
  if not HEAVY[name] then LIGHT[#LIGHT + 1] = name end
end
local AGES

-- Priorities, the highest first; a queue that never had another than 0 has one level.
local LEVELS
local function levels()
  if not LEVELS then
    LEVELS = call('EXISTS', Q .. ':levels') == 1 and {2, 1, 0, -1} or {0}
  end
  return LEVELS
end

local function due_key(tenant, level)
  return Q .. ':due' .. (level == 0 and '' or level) .. ':' .. tenant
end

local function job_key(id) return Q .. ':job:' .. id end

-- The job without its long texts; null columns are absent.
local function row_of(id)
  local found = call('HMGET', job_key(id), unpack(LIGHT))
  local job = {}
  for place, name in ipairs(LIGHT) do
    local value = found[place]
    if value then job[name] = NUMBER[name] and tonumber(value) or value end
  end
  return job.id and job or nil
end

local function whole_of(id) return call('HMGET', job_key(id), unpack(WHOLE)) end

-- A key is unique within its tenant; a key that includes the tenant is used without a prefix.
local function key_of(tenant, key)
  if LIFE.own_keys then return Q .. ':key:' .. key end
  return Q .. ':key:' .. #tenant .. ':' .. tenant .. ':' .. key -- safe for any characters in either
end

local function slot_of(state) return Q .. ':slot:' .. state end

-- Which stamps are indexed in which state: all that any version of the lifecycle has declared.
local function ages()
  if not AGES then
    AGES = {}
    for _, one in ipairs(call('SMEMBERS', Q .. ':ages')) do
      local state, stamp = one:match('^(.-)' .. SEP .. '(.*)$')
      AGES[state] = AGES[state] or {}
      table.insert(AGES[state], stamp)
    end
  end
  return AGES
end

-- Every sorted set that contains the job, with its score.
local function places(job)
  local at = {}
  local id, state = job.id, job.state
  at[Q .. ':jobs:' .. state] = job.created_at
  at[Q .. ':rows:' .. state .. ':' .. job.tenant] = 0
  if job.phase == READY then
    if job.run_at then at[due_key(job.tenant, job.priority or 0)] = job.run_at end
    if job.stamp_1 then at[Q .. ':aged:' .. job.tenant] = job.stamp_1 end
    local used = job.attempt_count - job.attempt_base
    if used > 0 then at[Q .. ':tried'] = used end
    if used >= job.max_attempts then at[Q .. ':spent'] = 0 end
  elseif job.phase == OWNED then
    at[Q .. ':leases'] = job.lease_until
  end
  if job.timer_at then at[Q .. ':timers:' .. state] = job.timer_at end
  for _, stamp in ipairs(ages()[state] or {}) do
    if job[stamp] then at[Q .. ':age:' .. stamp .. ':' .. state] = job[stamp] end
  end
  return at
end

local function index(id, tenant, before, after)
  for key in pairs(before) do
    if not after[key] then zrem(key, id) end
  end
  for key, score in pairs(after) do
    if before[key] ~= score then zadd(key, score, id) end
  end
  local was, is, waits = false, false, false
  for _, level in ipairs(levels()) do
    local due = due_key(tenant, level)
    was, is = was or before[due], is or after[due]
  end
  if is and not was then sadd(Q .. ':ready', tenant) end
  if was and not is then
    for _, level in ipairs(levels()) do
      waits = waits or call('EXISTS', due_key(tenant, level)) == 1
    end
    if not waits then srem(Q .. ':ready', tenant) end
  end
end

local function hold(job, holds)
  if not job.dedup_key then return end
  local key = key_of(job.tenant, job.dedup_key)
  local holder = call('GET', key)
  if holds and not holder then
    keep(key)
    call('SET', key, job.id)
  elseif not holds and holder == job.id then
    keep(key)
    call('DEL', key)
  end
end

local function occupy(job, from, to)
  if from == to then return end
  if from and LIFE.exclusive[from] then
    keep(slot_of(from))
    call('DEL', slot_of(from))
  end
  if to and LIFE.exclusive[to] then
    keep(slot_of(to))
    call('SET', slot_of(to), job.id)
  end
end

local ERROR = {'error_code', 'error_category', 'error_message'}

-- The event: the fields of every move, then those that this move was declared to set.
local function write_event(job, from, mask, claim, value, old_payload)
  local fields = {
    'at', text(job.moved_at), 'move', job.move, 'from_state', from, 'to_state', job.state,
    'phase', text(job.phase), 'claim', text(claim), 'actor', job.actor,
    'attempt', text(job.attempt_count), 'attempt_base', text(job.attempt_base),
    'return_count', text(job.return_count), 'max_attempts', text(job.max_attempts),
    'retry_count', text(job.retry_count), 'flags', text(job.flags), 'mask', text(mask),
  }
  local function say(name, said)
    if said then
      fields[#fields + 1] = name
      fields[#fields + 1] = text(said)
    end
  end
  say('worker', job.worker)
  say('note', value('note'))
  if bit.band(mask, MASK.error) ~= 0 then
    for _, name in ipairs(ERROR) do say(name, value(name)) end
  end
  for _, name in ipairs(SINGLE) do
    if bit.band(mask, MASK[name]) ~= 0 then say(name, value(name)) end
  end
  say('payload', value('new_payload'))
  say('old_payload', old_payload)
  local stream = Q .. ':events:' .. job.id
  keep(stream)
  call('XADD', stream, text(job.seq) .. '-0', unpack(fields))
end

-- Writes what a move changed: ``new`` holds its columns, false where one becomes null.
local function write(job, new, mask, claim)
  local key = job_key(job.id)
  keep(key)
  local old_payload = new.new_payload and call('HGET', key, 'payload') or nil
  local sets, gone, after = {}, {}, {}
  for name, value in pairs(job) do after[name] = value end
  for name, value in pairs(new) do
    if value then
      after[name] = value
      sets[#sets + 1] = name
      sets[#sets + 1] = text(value)
    else
      after[name] = nil
      gone[#gone + 1] = name
    end
  end
  call('HSET', key, unpack(sets))
  if #gone > 0 then call('HDEL', key, unpack(gone)) end
  local function value(name)
    if new[name] ~= nil then return new[name] end
    if HEAVY[name] then return call('HGET', key, name) end
    return job[name]
  end
  write_event(after, job.state, mask, claim, value, old_payload)
  count({after.move, job.state, after.state, job.tenant}, after.moved_at)
  hold(after, LIFE.holds[after.state] or after.once == 1)
  occupy(after, job.state, after.state)
  index(job.id, job.tenant, places(job), places(after))
  return after
end

-- Deletes everything about a job except the counters.
local function erase(job)
  local was = places(job)
  hold(job, false)
  occupy(job, job.state, nil)
  index(job.id, job.tenant, was, {})
  for _, key in ipairs({job_key(job.id), Q .. ':events:' .. job.id, Q .. ':notes:' .. job.id}) do
    keep(key)
    call('DEL', key)
  end
end

local function remove(job, move)
  erase(job)
  count({move, job.state, '', job.tenant}, job.moved_at)
end

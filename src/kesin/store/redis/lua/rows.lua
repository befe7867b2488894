-- A job is a hash; these functions write it, its event, counter, key, slot and indexes.

local WHOLE = COLUMNS -- prepended by the store
local HEAVY = {payload = true, result = true, new_payload = true, error_message = true}
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

local function use_levels(job)
  if (job.priority or 0) ~= 0 and call('EXISTS', Q .. ':levels') == 0 then
    keep(Q .. ':levels')
    call('SET', Q .. ':levels', '1')
    LEVELS = nil
  end
end

local function due_key(tenant, level)
  return Q .. ':due' .. (level == 0 and '' or level) .. ':' .. tenant
end

local function job_key(id) return Q .. ':job:' .. id end

-- The job without its long texts; null columns are absent.
local function row_of(id)
  local found = call('HMGET', job_key(id), unpack(LIGHT))
  local job = {}
  for place = 1, #LIGHT do -- for every job: ipairs would call a function for each column
    local value = found[place]
    if value then
      local name = LIGHT[place]
      job[name] = NUMBER[name] and tonumber(value) or value
    end
  end
  return job.id and job or nil
end

local function whole_of(id) return call('HMGET', job_key(id), unpack(WHOLE)) end

-- A key is unique within its tenant; a key that includes the tenant is used without a prefix.
local function key_of(tenant, key)
  if LIFE.own_keys then return Q .. ':key:' .. key end
  return Q .. ':key:' .. #tenant .. ':' .. tenant .. ':' .. key -- safe for any characters in either
end

-- A state with slots has a set of the jobs in it, for the queue or for each tenant. The only slot of
-- a queue is a key too, which holds the job: older processes know no other.
local function slot_key(state) return Q .. ':slot:' .. state end

local function inside_key(state, tenant)
  return Q .. ':inside:' .. state .. SEP .. (LIFE.per_tenant[state] and tenant or '')
end

-- How many slots there are: the newest rules say it.
local SLOTS = {}
local function slots_of(state)
  if not SLOTS[state] then
    SLOTS[state] = tonumber(call('HGET', Q .. ':slots', state)) or LIFE.slots[state] or 0
  end
  return SLOTS[state]
end

local function is_in(id, state) return call('HGET', job_key(id), 'state') == state end

-- How many slots of a state are free for jobs of a tenant, beside one of them. Where none seems to
-- be, jobs that an older process took out of the state are forgotten.
local function free_slots(state, tenant, besides)
  local key, used = inside_key(state, tenant), 0
  local function count()
    used = call('SCARD', key)
    if besides and call('SISMEMBER', key, besides) == 1 then used = used - 1 end
    local holder = not LIFE.per_tenant[state] and call('GET', slot_key(state))
    if holder and holder ~= besides and call('SISMEMBER', key, holder) == 0
      and is_in(holder, state) then
      used = used + 1
    end
    return slots_of(state) - used
  end
  if count() > 0 then return slots_of(state) - used end
  for _, id in ipairs(call('SMEMBERS', key)) do
    if not is_in(id, state) then srem(key, id) end
  end
  return count()
end

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
  local due, waits = due_key(tenant, 0), false
  local was, is = before[due], after[due]
  for place = 1, #levels() > 1 and #levels() or 0 do
    due = due_key(tenant, levels()[place])
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

local function take(key, value)
  keep(key)
  if value then call('SET', key, value) else call('DEL', key) end
end

local function occupy(job, from, to)
  if from == to then return end
  if from and (LIFE.slots[from] or 0) > 0 then
    srem(inside_key(from, job.tenant), job.id)
    if call('GET', slot_key(from)) == job.id then take(slot_key(from)) end
  end
  if to and (LIFE.slots[to] or 0) > 0 then
    sadd(inside_key(to, job.tenant), job.id)
    if LIFE.slots[to] == 1 and not LIFE.per_tenant[to] then take(slot_key(to), job.id) end
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
  for place = 1, #SINGLE do
    local name = SINGLE[place]
    if bit.band(mask, MASK[name]) ~= 0 then say(name, value(name)) end
  end
  say('payload', value('new_payload'))
  say('old_payload', old_payload)
  local stream = Q .. ':events:' .. job.id
  keep(stream)
  call('XADD', stream, text(job.seq) .. '-0', unpack(fields))
end

-- A job that waits for others has a hash of them, each with its mark and its queue. Marks: 1 has
-- succeeded, x is at rest without success, 0 neither. Each of them has a set of those that wait.

local function parents_key(queue, id) return queue .. ':parents:' .. id end

local function children_key(id) return 'kesin:children:' .. id end

local function child_of(member) return member:match('^(.-)' .. SEP .. '(.*)$') end

local function is_over(phase) return phase == 2 or phase == 3 end

-- How a job is, for those that come after it. A queue that no process of this version has opened
-- has not said which of its states are a success.
local function mark_of(queue, id)
  local found = call('HMGET', queue .. ':job:' .. id, 'state', 'phase')
  if not is_over(tonumber(found[2])) or call('EXISTS', queue .. ':success') == 0
    or call('SISMEMBER', queue .. ':waits', found[1]) == 1 then
    return '0'
  end
  return call('SISMEMBER', queue .. ':success', found[1]) == 1 and '1' or 'x'
end

-- The marks of a job's parents as they are now; one that has succeeded stays so.
local function marks_of(job)
  local marks, found = {}, call('HGETALL', parents_key(Q, job.id))
  for place = 1, #found, 2 do
    local mark, queue = found[place + 1]:match('^(.)' .. SEP .. '(.*)$')
    marks[#marks + 1] = mark == '1' and mark or mark_of(queue, found[place])
  end
  return marks
end

-- Marks a job in the hashes of those that come after it.
local function tell(job)
  if call('EXISTS', children_key(job.id)) == 0 then return end
  local rests = is_over(job.phase) and not LIFE.waits[job.state]
  local mark = rests and (LIFE.success[job.state] and '1' or 'x') or '0'
  local queues = {}
  for _, member in ipairs(call('SMEMBERS', children_key(job.id))) do
    local queue, child = child_of(member)
    local key = parents_key(queue, child)
    local known = call('HGET', key, job.id)
    if known and known:sub(1, 1) ~= '1' then hset_one(key, job.id, mark .. SEP .. Q) end
    if rests then
      sadd(queue .. ':news', child)
      queues[queue] = true
    end
  end
  for queue in pairs(queues) do call('PUBLISH', 'kesin:pulse', queue) end
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
      local stored = HEAVY[name] or job[name]
      if name == 'new_payload' then stored = job.seq > 1 and job.payload_seq == job.seq end
      if stored then gone[#gone + 1] = name end
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
  if new.priority then use_levels(after) end
  index(job.id, job.tenant, places(job), places(after))
  if is_over(job.phase) or is_over(after.phase) then tell(after) end
  return after
end

-- Deletes everything about a job except the counters.
local function erase(job)
  local was = places(job)
  hold(job, false)
  occupy(job, job.state, nil)
  index(job.id, job.tenant, was, {})
  local parents = parents_key(Q, job.id)
  for _, parent in ipairs(call('HKEYS', parents)) do
    srem(children_key(parent), Q .. SEP .. job.id)
  end
  srem(Q .. ':news', job.id)
  for _, key in ipairs({job_key(job.id), Q .. ':events:' .. job.id, Q .. ':notes:' .. job.id,
    Q .. ':progress:' .. job.id, parents}) do
    take(key)
  end
end

local function remove(job, move)
  for _, member in ipairs(call('SMEMBERS', children_key(job.id))) do
    local queue, child = child_of(member)
    keep(parents_key(queue, child))
    call('HDEL', parents_key(queue, child), job.id)
  end
  take(children_key(job.id))
  erase(job)
  count({move, job.state, '', job.tenant}, job.moved_at)
end

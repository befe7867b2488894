-- The operations that write.

local OPS = {}
local WALK = 1000 -- members of an index read at a time

local function beat() call('PUBLISH', 'kesin:pulse', Q) end

local function use_levels()
  if call('EXISTS', Q .. ':levels') == 0 then
    keep(Q .. ':levels')
    call('SET', Q .. ':levels', '1')
    LEVELS = nil
  end
end

local function born(item)
  local job = {
    id = item.id, queue = Q, tenant = item.tenant, state = LIFE.initial, move = LIFE.birth,
    phase = LIFE.phase[LIFE.initial], actor = ASK.actor, seq = 1, claim_seq = 0, payload_seq = 1,
    attempt_count = 0, attempt_base = 0, return_count = 0, max_attempts = item.max_attempts,
    retry_count = 0, salt = item.salt, flags = 0, created_at = NOW, moved_at = NOW,
    run_at = item.run_at or NOW, note = item.note, dedup_key = item.dedup_key,
    payload = item.payload, priority = item.priority ~= 0 and item.priority or nil,
    once = item.once and 1 or nil, stamp_1 = item.stamp_1, stamp_2 = item.stamp_2,
    stamp_3 = item.stamp_3, stamp_4 = item.stamp_4,
  }
  local key, fields = job_key(job.id), {}
  for name, value in pairs(job) do
    fields[#fields + 1] = name
    fields[#fields + 1] = text(value)
  end
  keep(key)
  call('HSET', key, unpack(fields))
  if job.priority then use_levels() end
  local mask = LIFE.masks[table.concat({LIFE.birth, '', LIFE.initial}, SEP)]
  write_event(job, '', mask, -1, function(name) return job[name] end)
  count({LIFE.birth, '', LIFE.initial, job.tenant}, NOW)
  if LIFE.holds[LIFE.initial] then hold(job, true) end
  occupy(job, nil, LIFE.initial)
  index(job.id, job.tenant, {}, places(job))
  return job
end

function OPS.enqueue()
  local seen = {}
  for _, item in ipairs(ITEMS) do
    if seen[item.id] or call('EXISTS', job_key(item.id)) == 1 then
      return redis.error_reply('KESINEXISTS a job with this id exists: ' .. item.id)
    end
    seen[item.id] = true
  end
  local answers, any = {}, false
  for place, item in ipairs(ITEMS) do
    local key = item.dedup_key and key_of(item.tenant, item.dedup_key)
    local holder = key and call('GET', key)
    if holder then
      local found = call('HMGET', job_key(holder), 'state', 'seq')
      answers[place] = {'duplicate', holder, found[1], tonumber(found[2])}
      note(holder, 'duplicate', ASK.actor)
    else
      born(item)
      answers[place] = {'inserted', item.id, LIFE.initial, 1}
      any = true
    end
  end
  if any then beat() end
  return answers
end

local function paused()
  local names = {}
  for _, name in ipairs(call('HKEYS', Q .. ':paused')) do names[name] = true end
  return names
end

local function claimable(id)
  local job = row_of(id)
  if job and job.phase == READY and job.run_at and job.run_at <= NOW and choose(MOVES, job, {}) then
    return job
  end
  return nil
end

local function by_due(a, b)
  local first, second = a.priority or 0, b.priority or 0
  if first ~= second then return first > second end
  if a.run_at ~= b.run_at then return a.run_at < b.run_at end
  return a.id < b.id
end

local function due_of(tenant, most)
  local found = {}
  for _, level in ipairs(levels()) do
    local from = 0
    repeat
      local ids = call('ZRANGEBYSCORE', due_key(tenant, level), '-inf', text(NOW),
        'LIMIT', from, math.min(most, WALK))
      for _, id in ipairs(ids) do
        local job = claimable(id)
        if job then found[#found + 1] = job end
        if #found == most then return found end
      end
      from = from + #ids
    until #ids == 0
  end
  return found
end

local function has_due(tenant)
  for _, level in ipairs(levels()) do
    if call('ZCOUNT', due_key(tenant, level), '-inf', text(NOW)) > 0 then return true end
  end
  return false
end

local function due_among(ids)
  local closed, found = paused(), {}
  for _, id in ipairs(ids) do
    local job = claimable(id)
    if job and not closed[''] and not closed[job.tenant] then found[#found + 1] = job end
  end
  table.sort(found, by_due)
  return found
end

-- Tenants in the order of their turns: by name, behind the one served last.
local function turns(tenants)
  table.sort(tenants, function(a, b)
    local first, second = a <= ASK.after, b <= ASK.after
    if first ~= second then return second end
    return a < b
  end)
  return tenants
end

-- The due jobs; tenants take turns.
local function due()
  if ASK.ids then return due_among(ASK.ids) end
  local closed, open = paused(), {}
  if closed[''] then return {} end
  for _, tenant in ipairs(turns(ASK.tenants or call('SMEMBERS', Q .. ':ready'))) do
    if not closed[tenant] and has_due(tenant) then
      open[#open + 1] = tenant
      closed[tenant] = true -- named twice, served once
    end
  end
  local served = math.max(math.min(#open, ASK.limit), 1)
  local share, more = math.floor(ASK.limit / served), ASK.limit % served
  local taken_ = {}
  for nth, tenant in ipairs(open) do
    local most = math.min(share + (nth <= more and 1 or 0), ASK.limit - #taken_)
    if most <= 0 then break end
    for _, job in ipairs(due_of(tenant, most)) do taken_[#taken_ + 1] = job end
  end
  table.sort(taken_, by_due)
  return taken_
end

-- If a claim takes a key, two jobs with the same key cannot both be claimed: claim one job only.
local function picked()
  local jobs, wanted = due(), {}
  local most = math.min(#jobs, ASK.limit)
  if LIFE.claims_contested then
    for place = 1, most do
      local key = jobs[place].dedup_key and key_of(jobs[place].tenant, jobs[place].dedup_key)
      if key and wanted[key] then
        ASK.limit = 1
        jobs = due()
        most = math.min(#jobs, 1)
        break
      end
      if key then wanted[key] = true end
    end
  end
  for place = #jobs, most + 1, -1 do jobs[place] = nil end
  return jobs
end

function OPS.claim()
  local answers = {}
  for place, job in ipairs(picked()) do
    make(choose(MOVES, job, {}), job, {})
    answers[place] = whole_of(job.id)
  end
  return answers
end

function OPS.peek()
  local answers = {}
  for place, job in ipairs(picked()) do answers[place] = whole_of(job.id) end
  return answers
end

function OPS.renew()
  local kept = {}
  for _, item in ipairs(ITEMS) do
    local job = row_of(item.id)
    if job and job.phase == OWNED and job.claim_seq == item.token
      and job.claimed_at + LIFE.max_run_us > NOW then
      local till = math.min(NOW + ASK.lease_us, job.claimed_at + LIFE.max_run_us)
      till = math.max(till, job.lease_until)
      keep(job_key(job.id))
      call('HSET', job_key(job.id), 'lease_until', text(till))
      zadd(Q .. ':leases', till, job.id)
      kept[#kept + 1] = job.id
    end
  end
  return kept
end

local function allowed(job)
  return job and (not ASK.tenants or ASK.tenants[job.tenant])
end

local function chained(move, job)
  local link = move.links and choose(move.links, job, {})
  return link and make(link, job, {}) or job
end

local function asked(item)
  local job = row_of(item.id)
  if not allowed(job) then return {'unknown', item.id} end
  local move = choose(MOVES, job, item)
  if move then
    job = chained(move, make(move, job, item))
    return {'moved', job.id, job.state, job.seq}
  end
  local why = reason(MOVES, job, item)
  if why == 'stale' then note(job.id, 'stale', ASK.actor, ASK.call) end
  return {why, job.id, job.state, job.seq, why == 'duplicate' and rival(job) or false}
end

function OPS.apply()
  local answers, any = {}, false
  for place, item in ipairs(ITEMS) do
    answers[place] = asked(item)
    any = any or answers[place][1] == 'moved'
  end
  if any then beat() end
  return answers
end

-- The candidates of a scheduled move: the sorted sets to read, and how far.
local function candidates(move)
  local ways = {}
  if move.way == 'leases' then return {{Q .. ':leases', '-inf', text(NOW)}} end
  if move.way == 'spent' then
    if ASK.cap then return {{Q .. ':tried', text(ASK.cap), '+inf'}} end
    return {{Q .. ':spent', '-inf', '+inf'}}
  end
  for state in pairs(move.sources) do
    if move.way == 'timers' then
      ways[#ways + 1] = {Q .. ':timers:' .. state, '-inf', text(NOW)}
    elseif move.way == 'age' and move.stamp_aged ~= 'created_at' then
      local key = Q .. ':age:' .. move.stamp_aged .. ':' .. state
      ways[#ways + 1] = {key, '-inf', text(NOW - move.aged_us)}
    else
      local till = move.way == 'age' and text(NOW - move.aged_us) or '+inf'
      ways[#ways + 1] = {Q .. ':jobs:' .. state, '-inf', till}
    end
  end
  return ways
end

local function ripe(id, move)
  local job = row_of(id)
  if not job or not move.sources[job.state] then return nil end
  if move.way ~= 'leases' and move.way ~= 'timers' and job.phase == OWNED then return nil end
  if ASK.min_age_us > 0 and job.moved_at > NOW - ASK.min_age_us then return nil end
  return fits(move, job, {}) and job or nil
end

-- Limits how many jobs are moved and how many are examined: Redis blocks all clients meanwhile.
function OPS.sweep()
  local move, moved, looked, skipped = MOVES[1], 0, 0, ASK.skip
  local left = ASK.most_looked
  for _, way in ipairs(candidates(move)) do
    local from = math.min(skipped, call('ZCOUNT', way[1], way[2], way[3]))
    skipped = skipped - from
    while true do
      local ids = call('ZRANGEBYSCORE', way[1], way[2], way[3],
        'LIMIT', from, math.min(WALK, left - looked))
      if move.way == 'leases' or move.way == 'spent' then table.sort(ids) end
      for _, id in ipairs(ids) do
        looked = looked + 1
        local job = ripe(id, move)
        if not job then
          from = from + 1
          ASK.skip = ASK.skip + 1
        elseif move.prunes then
          if not job.finished_at then
            return redis.error_reply('KESINGUARD only finished jobs may be pruned')
          end
          remove(job, move.name)
          moved = moved + 1
        else
          chained(move, make(move, job, {}))
          moved = moved + 1
        end
        if moved == ASK.limit then
          beat()
          return {moved, ASK.skip, 0}
        end
      end
      if #ids == 0 then break end
      if looked >= left then
        if moved > 0 then beat() end
        return {moved, ASK.skip, 1}
      end
    end
  end
  if moved > 0 then beat() end
  return {moved, ASK.skip, 0}
end

function OPS.add_note()
  if ASK.job_id and call('EXISTS', job_key(ASK.job_id)) == 0 then return end
  note(ASK.job_id, ASK.kind, ASK.actor, ASK.details)
end

function OPS.pause()
  keep(Q .. ':paused')
  local said = cjson.encode({text(NOW), ASK.actor, ASK.reason or cjson.null})
  call('HSETNX', Q .. ':paused', ASK.tenant, said)
end

function OPS.resume()
  keep(Q .. ':paused')
  local gone = call('HDEL', Q .. ':paused', ASK.tenant)
  beat()
  return gone
end

function OPS.put_schedules()
  keep(Q .. ':schedules')
  for _, row in ipairs(ITEMS) do
    call('HSET', Q .. ':schedules', row.name, cjson.encode({row.definition, text(row.next_at)}))
  end
  for _, name in ipairs(ASK.gone) do call('HDEL', Q .. ':schedules', name) end
end

-- Declarations only grow: what an older process relies on stays as it is.
function OPS.declare()
  if ASK.rules then
    if call('LLEN', Q .. ':rules') ~= ASK.versions
      or call('SCARD', Q .. ':retired') ~= ASK.retired then
      return redis.error_reply('KESINRULES another version of the rules was declared meanwhile')
    end
    keep(Q .. ':rules')
    for _, version in ipairs(ASK.rules) do call('RPUSH', Q .. ':rules', version) end
    note(nil, 'declared', 'redis', ASK.fingerprint)
  end
  for _, one in ipairs(ITEMS) do hset_one(Q .. ':declared', one[1], one[2]) end
  keep(Q .. ':lifecycle')
  call('SET', Q .. ':lifecycle', ASK.definition)
  sadd('kesin:queues', Q)
  call('SETNX', 'kesin:schema', ASK.version)
  for _, one in ipairs(ASK.ages) do
    local state, stamp = one[1], one[2]
    if call('SISMEMBER', Q .. ':ages', state .. SEP .. stamp) == 0 then
      sadd(Q .. ':ages', state .. SEP .. stamp)
      for _, id in ipairs(call('ZRANGE', Q .. ':jobs:' .. state, 0, -1)) do
        local value = call('HGET', job_key(id), stamp)
        if value then zadd(Q .. ':age:' .. stamp .. ':' .. state, tonumber(value), id) end
      end
    end
  end
end

function OPS.put_rules()
  if call('EXISTS', Q .. ':rules') == 1 then return end
  keep(Q .. ':rules')
  for _, version in ipairs(ITEMS) do call('RPUSH', Q .. ':rules', version) end
  note(nil, 'declared', 'redis', 'copied')
end

-- Answers how many jobs are still in the state; only an empty one is retired.
function OPS.retire()
  local jobs = call('ZCARD', Q .. ':jobs:' .. ASK.state)
  if jobs == 0 and call('SISMEMBER', Q .. ':retired', ASK.state) == 0 then
    sadd(Q .. ':retired', ASK.state)
    note(nil, 'declared', 'redis', 'retired ' .. ASK.state)
  end
  return jobs
end

-- Metadata of a workload, changed in the same transactions as its jobs.

function OPS.put_fact() hset_one('kesin:facts:' .. ASK.workload, ASK.name, ASK.value) end

function OPS.drop_fact()
  local key = 'kesin:facts:' .. ASK.workload
  local before = call('HGET', key, ASK.name)
  if before and ASK.tx then later('HSET', key, ASK.name, before) end
  return call('HDEL', key, ASK.name)
end

-- Copies from another store: raw jobs, without counting them.

local function take_out(id)
  local job = id and row_of(id)
  if job then erase(job) end
end

function OPS.put_jobs()
  for _, item in ipairs(ITEMS) do take_out(item.id) end
  for _, item in ipairs(ITEMS) do
    local key, stream, notes = job_key(item.id), Q .. ':events:' .. item.id, Q .. ':notes:' .. item.id
    keep(key)
    call('HSET', key, unpack(item.fields))
    local job = row_of(item.id)
    if job.priority and job.priority ~= 0 then use_levels() end
    keep(stream)
    for _, event in ipairs(item.events) do call('XADD', stream, event[1] .. '-0', unpack(event[2])) end
    keep(notes)
    for _, said in ipairs(item.notes) do call('RPUSH', notes, said) end
    -- Any other job that holds its key or slot is an outdated copy: both cannot hold it.
    if LIFE.holds[job.state] or job.once == 1 then
      take_out(rival(job))
      hold(job, true)
    end
    if LIFE.exclusive[job.state] then take_out(taken(slot_of(job.state), job)) end
    occupy(job, nil, job.state)
    index(job.id, job.tenant, {}, places(job))
  end
end

function OPS.drop_jobs()
  for _, id in ipairs(ITEMS) do take_out(id) end
end

function OPS.put_flows()
  for _, key in ipairs({Q .. ':flow', Q .. ':flow_at'}) do
    keep(key)
    call('DEL', key)
  end
  for _, one in ipairs(ITEMS) do
    call('HSET', Q .. ':flow', one[1], one[2])
    call('HSET', Q .. ':flow_at', one[1], one[3])
  end
end

-- Transactions

function OPS.begin()
  call('HSET', LOCK, 'token', ASK.token, 'until', text(clock() + ASK.hold_us))
end

function OPS.mark() return call('LLEN', UNDO) end

function OPS.undo() undo(ASK.to) end

function OPS.commit() call('DEL', UNDO, LOCK) end

function OPS.abandon()
  undo(0)
  call('DEL', UNDO, LOCK)
end

function OPS.put_version() call('SET', 'kesin:schema', ASK.version) end

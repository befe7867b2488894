-- The operations that write.

local OPS = {}
local WALK = 1000 -- members of an index read at a time

local function beat() call('PUBLISH', 'kesin:pulse', Q) end

local function comes_after(job, parents)
  local key = parents_key(Q, job.id)
  keep(key)
  for id, queue in pairs(parents) do
    call('HSET', key, id, mark_of(queue, id) .. SEP .. queue)
    sadd(children_key(id), Q .. SEP .. job.id)
  end
  sadd(Q .. ':news', job.id)
end

local function born(item)
  local way = item.parents and LIFE.after or LIFE
  local job = {
    id = item.id, queue = Q, tenant = item.tenant, state = way.initial, move = way.birth,
    phase = LIFE.phase[way.initial], actor = ASK.actor, seq = 1, claim_seq = 0, payload_seq = 1,
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
  use_levels(job)
  local mask = LIFE.masks[table.concat({way.birth, '', way.initial}, SEP)]
  write_event(job, '', mask, -1, function(name) return job[name] end)
  count({way.birth, '', way.initial, job.tenant}, NOW)
  if LIFE.holds[way.initial] then hold(job, true) end
  if item.parents then comes_after(job, item.parents) end
  index(job.id, job.tenant, {}, places(job))
  return job
end

-- The queue of a job that is looked up by its id alone; most are where the last one was.
local LAST_HOME
local function home_of(id)
  if LAST_HOME and call('EXISTS', LAST_HOME .. ':job:' .. id) == 1 then return LAST_HOME end
  for _, queue in ipairs(call('SMEMBERS', 'kesin:queues')) do
    if call('EXISTS', queue .. ':job:' .. id) == 1 then
      LAST_HOME = queue
      return queue
    end
  end
  return nil
end

-- Finds the queues of the jobs that new ones come after; returns the ids of those that are none.
local function find_parents()
  local homes, missing = {}, {}
  for _, item in ipairs(ITEMS) do
    if #item.after > 0 then
      item.parents = {}
      for _, id in ipairs(item.after) do
        homes[id] = homes[id] or home_of(id)
        item.parents[id] = homes[id]
        if not homes[id] then missing[#missing + 1] = id end
      end
    end
  end
  return missing
end

function OPS.enqueue()
  local missing = find_parents()
  if #missing > 0 then return {missing, {}} end
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
      answers[place] = {'inserted', item.id, (item.parents and LIFE.after or LIFE).initial, 1}
      any = true
    end
  end
  if any then beat() end
  return {{}, answers}
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

-- What slots and a rate leave to a claim: of the queue, and of each tenant.

local function meter_field(tenant) return LIFE.meter.move .. SEP .. tenant end

local function paid_at(tenant)
  local free_at = tonumber(call('HGET', Q .. ':meter', meter_field(tenant)) or '0')
  if free_at > NOW + LIFE.meter.per_us + LIFE.meter.back_us then return NOW end
  return math.min(math.max(free_at, NOW), NOW + LIFE.meter.per_us)
end

local FREE = {} -- what this claim has looked up

local function looked_up(state, tenant)
  local whose = state .. SEP .. tenant
  FREE[whose] = FREE[whose] or math.max(free_slots(state, tenant), 0)
  return FREE[whose]
end

local function left_of(tenant)
  local left = ASK.limit
  if not LIFE.limited then return left end
  local state = MOVES[1].to
  if LIFE.per_tenant[state] then left = math.min(left, looked_up(state, tenant)) end
  if LIFE.meter then
    local due_us = NOW + LIFE.meter.per_us - paid_at(tenant)
    left = math.min(left, math.floor(due_us * LIFE.meter.claims / LIFE.meter.per_us))
  end
  return left
end

local function left_in_all()
  local state = MOVES[1].to
  if not LIFE.limited or slots_of(state) == 0 or LIFE.per_tenant[state] then return ASK.limit end
  return math.min(ASK.limit, looked_up(state, ''))
end

local function spend(jobs)
  if not LIFE.meter then return end
  local taken_ = {}
  for _, job in ipairs(jobs) do taken_[job.tenant] = (taken_[job.tenant] or 0) + 1 end
  for tenant, n in pairs(taken_) do
    local paid = math.ceil(n * LIFE.meter.per_us / LIFE.meter.claims)
    hset_one(Q .. ':meter', meter_field(tenant), text(paid_at(tenant) + paid))
  end
end

-- Those that count for nothing any more, even if the clock goes back.
local function drop_meters()
  local known = call('HGETALL', Q .. ':meter')
  for place = 1, #known, 2 do
    if tonumber(known[place + 1]) < NOW - LIFE.meter.back_us then
      call('HDEL', Q .. ':meter', known[place])
    end
  end
end

local function within_limits(jobs)
  local left, kept = {}, {}
  for _, job in ipairs(jobs) do
    left[job.tenant] = (left[job.tenant] or left_of(job.tenant)) - 1
    if left[job.tenant] >= 0 then kept[#kept + 1] = job end
  end
  return kept
end

-- The due jobs; tenants take turns.
local function due()
  ASK.limit = left_in_all()
  if ASK.ids then return within_limits(due_among(ASK.ids)) end
  local closed, open = paused(), {}
  if closed[''] then return {} end
  for _, tenant in ipairs(turns(ASK.tenants or call('SMEMBERS', Q .. ':ready'))) do
    if not closed[tenant] and has_due(tenant) and left_of(tenant) > 0 then
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
    most = math.min(most, left_of(tenant))
    for _, job in ipairs(due_of(tenant, most)) do taken_[#taken_ + 1] = job end
  end
  if #open > 1 then table.sort(taken_, by_due) end -- those of one tenant were read in this order
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
  local answers, jobs = {}, picked()
  spend(jobs)
  for place, job in ipairs(jobs) do
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

local function child_waits(id)
  for _, member in ipairs(call('SMEMBERS', children_key(id))) do
    local queue, child = child_of(member)
    local found = call('HMGET', queue .. ':job:' .. child, 'state', 'phase')
    local over = not found[1] or is_over(tonumber(found[2]))
    if not over or call('SISMEMBER', queue .. ':waits', found[1]) == 1 then return true end
  end
  return false
end

local function ripe(id, move)
  local job = row_of(id)
  if not job or not move.sources[job.state] then return nil end
  if move.way ~= 'leases' and move.way ~= 'timers' and job.phase == OWNED then return nil end
  if ASK.min_age_us > 0 and job.moved_at > NOW - ASK.min_age_us then return nil end
  if move.prunes and child_waits(id) then return nil end
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
  if move.prunes and LIFE.meter then drop_meters() end
  if moved > 0 then beat() end
  return {moved, ASK.skip, 0}
end

-- Moves on the jobs that wait for others which came to rest.
function OPS.settle()
  local moved, news = 0, call('SRANDMEMBER', Q .. ':news', math.min(ASK.limit, WALK))
  table.sort(news)
  for _, id in ipairs(news) do
    srem(Q .. ':news', id)
    local job = row_of(id)
    local move = job and choose(MOVES, job, {})
    if move then
      make(move, job, {})
      moved = moved + 1
    end
  end
  if moved > 0 then beat() end
  return {moved, #news}
end

function OPS.report()
  local found = call('HMGET', job_key(ASK.id), 'phase', 'claim_seq')
  if tonumber(found[1]) ~= OWNED or tonumber(found[2]) ~= ASK.token then return 0 end
  keep(Q .. ':progress:' .. ASK.id)
  call('SET', Q .. ':progress:' .. ASK.id, ASK.said .. SEP .. text(NOW))
  return 1
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

function OPS.put_listing()
  keep(Q .. ':listing')
  call('SET', Q .. ':listing', ASK.listing)
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
  for kind, names in pairs({success = LIFE.success, waits = LIFE.waits}) do
    for name in pairs(names) do sadd(Q .. ':' .. kind, name) end
  end
  for state, slots in pairs(ASK.slots or {}) do hset_one(Q .. ':slots', state, text(slots)) end
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
    use_levels(job)
    keep(stream)
    for _, event in ipairs(item.events) do call('XADD', stream, event[1] .. '-0', unpack(event[2])) end
    keep(notes)
    for _, said in ipairs(item.notes) do call('RPUSH', notes, said) end
    for _, parent in ipairs(item.parents) do
      call('HSET', parents_key(Q, item.id), parent, '1' .. SEP .. (home_of(parent) or Q))
      sadd(children_key(parent), Q .. SEP .. item.id)
    end
    -- Any other job that holds its key or slot is an outdated copy: both cannot hold it.
    if LIFE.holds[job.state] or job.once == 1 then
      take_out(rival(job))
      hold(job, true)
    end
    if LIFE.slots[job.state] == 1 and not LIFE.per_tenant[job.state] then
      take_out(taken(slot_key(job.state), job))
    end
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

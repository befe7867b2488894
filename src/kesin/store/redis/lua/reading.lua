-- The operations that only read.

local function split_flow(field)
  return field:match('^(.-)' .. SEP .. '(.-)' .. SEP .. '(.-)' .. SEP .. '(.*)$')
end

function OPS.job()
  Q = home_of(ASK.id)
  return Q and whole_of(ASK.id) or false
end

function OPS.find()
  local answers = {}
  for _, id in ipairs(ITEMS) do
    local found = whole_of(id)
    if found[1] then answers[#answers + 1] = found end
  end
  return answers
end

-- Jobs of any queue, by the queue and the id.
local function wholes(pairs_)
  local answers = {}
  for _, one in ipairs(pairs_) do
    local found = one[1] and call('HMGET', one[1] .. ':job:' .. one[2], unpack(WHOLE))
    if found and found[1] then answers[#answers + 1] = found end
  end
  return answers
end

function OPS.parents()
  local found, known = {}, call('HGETALL', parents_key(Q, ASK.id))
  for place = 1, #known, 2 do
    local mark, queue = known[place + 1]:match('^(.)' .. SEP .. '(.*)$')
    if known[place] > ASK.after and not (ASK.undone and mark == '1') then
      found[#found + 1] = {queue, known[place]}
    end
  end
  table.sort(found, function(a, b) return a[2] < b[2] end)
  for place = #found, ASK.limit + 1, -1 do found[place] = nil end
  return wholes(found)
end

function OPS.meters()
  local found, known = {}, call('HGETALL', Q .. ':meter')
  for place = 1, #known, 2 do
    found[#found + 1] = {known[place]:match(SEP .. '(.*)$'), known[place + 1]}
  end
  table.sort(found, function(a, b) return tonumber(a[2]) > tonumber(b[2]) end)
  for place = #found, ASK.limit + 1, -1 do found[place] = nil end
  return found
end

function OPS.children()
  local found = {}
  for _, member in ipairs(call('SMEMBERS', children_key(ASK.id))) do
    found[#found + 1] = {child_of(member)}
  end
  table.sort(found, function(a, b) return a[2] < b[2] end)
  for place = #found, ASK.limit + 1, -1 do found[place] = nil end
  return wholes(found)
end

function OPS.progress()
  local answers = {}
  for place, id in ipairs(ITEMS) do
    local found = call('HMGET', job_key(id), 'phase', 'claim_seq')
    local said = tonumber(found[1]) == OWNED and call('GET', Q .. ':progress:' .. id)
    answers[place] = {id, said or false, found[2]}
  end
  return answers
end

function OPS.states()
  local answers = {}
  for place, id in ipairs(ITEMS) do answers[place] = call('HGET', job_key(id), 'state') end
  return answers
end

function OPS.holders()
  local answers = {}
  for place, key in ipairs(ITEMS) do answers[place] = call('GET', key_of(ASK.tenant, key)) end
  return answers
end

function OPS.events()
  Q = home_of(ASK.id)
  return Q and call('XRANGE', Q .. ':events:' .. ASK.id, '-', '+') or {}
end

function OPS.notes()
  Q = home_of(ASK.id)
  return Q and call('LRANGE', Q .. ':notes:' .. ASK.id, 0, -1) or {}
end

function OPS.flows()
  return {call('HGETALL', Q .. ':flow'), call('HGETALL', Q .. ':flow_at')}
end

local function oldest_due(tenant)
  local oldest
  for _, level in ipairs(levels()) do
    local first = call('ZRANGEBYSCORE', due_key(tenant, level), '-inf', text(NOW),
      'WITHSCORES', 'LIMIT', 0, 1)
    local at = first[2] and tonumber(first[2])
    if at and (not oldest or at < oldest) then oldest = at end
  end
  return oldest
end

function OPS.overdue()
  local oldest
  for _, tenant in ipairs(call('SMEMBERS', Q .. ':ready')) do
    local due_at = oldest_due(tenant)
    if due_at and (not oldest or due_at < oldest) then oldest = due_at end
  end
  return {oldest and text(oldest) or false, call('ZCOUNT', Q .. ':leases', '-inf', text(NOW)),
    text(NOW)}
end

function OPS.waiting()
  local first = {}
  for place, state in ipairs(ITEMS) do
    local key, from = Q .. ':rows:' .. state .. ':' .. ASK.tenant, 0
    first[place] = false
    repeat
      local ids = call('ZRANGE', key, from, from + 99)
      for _, id in ipairs(ids) do
        local found = call('HMGET', job_key(id), 'phase', 'created_at')
        if tonumber(found[1]) ~= OWNED then
          first[place] = found[2]
          break
        end
      end
      from = from + #ids
    until first[place] or #ids == 0
  end
  local over = 0
  for _, id in ipairs(call('ZRANGEBYSCORE', Q .. ':leases', '-inf', text(NOW))) do
    if call('HGET', job_key(id), 'tenant') == ASK.tenant then over = over + 1 end
  end
  local aging = 0
  if ASK.aged then
    aging = call('ZCOUNT', Q .. ':aged:' .. ASK.tenant, '-inf', '(' .. text(ASK.aged))
  end
  local due_at = oldest_due(ASK.tenant)
  return {due_at and text(due_at) or false, first, over, aging}
end

function OPS.ahead()
  local job = row_of(ASK.id)
  if not job or job.phase ~= READY then return false end
  local before = 0
  if not job.run_at then return before end
  local at = text(job.run_at)
  for _, tenant in ipairs(call('SMEMBERS', Q .. ':ready')) do
    for _, level in ipairs(levels()) do
      local key = due_key(tenant, level)
      before = before + call('ZCOUNT', key, '-inf', '(' .. at)
      for _, id in ipairs(call('ZRANGEBYSCORE', key, at, at)) do
        if id < job.id then before = before + 1 end
      end
    end
  end
  return math.min(before, ASK.most)
end

function OPS.paused() return call('HGETALL', Q .. ':paused') end

function OPS.schedules() return call('HGETALL', Q .. ':schedules') end

function OPS.listing() return call('GET', Q .. ':listing') end

function OPS.definition() return call('GET', Q .. ':lifecycle') end

function OPS.declared()
  return {call('HGETALL', Q .. ':declared'), call('SMEMBERS', Q .. ':ages'),
    call('GET', 'kesin:schema'), call('EXISTS', Q .. ':success')}
end

function OPS.ready_tenants() return call('SMEMBERS', Q .. ':ready') end

function OPS.rules() return call('LRANGE', Q .. ':rules', 0, -1) end

function OPS.retired_states() return call('SMEMBERS', Q .. ':retired') end

function OPS.queues() return call('SMEMBERS', 'kesin:queues') end

function OPS.version() return call('GET', 'kesin:schema') end

-- Pages: the newest of several lists, each in the order of ids, merged; or the oldest.

local function newer(lists)
  local best
  for _, list in ipairs(lists) do
    if not list.ids[list.at] and not list.ended then
      list.ids = call(ASK.oldest_first and 'ZRANGEBYLEX' or 'ZREVRANGEBYLEX', list.key,
        '(' .. list.below, ASK.oldest_first and '+' or '-', 'LIMIT', 0, 100)
      list.at = 1
      list.ended = #list.ids == 0
      list.below = list.ids[#list.ids]
    end
    local id = list.ids[list.at]
    if id and (not best or (id > best.ids[best.at]) ~= (ASK.oldest_first == true)) then
      best = list
    end
  end
  if not best then return nil end
  best.at = best.at + 1
  return best.ids[best.at - 1]
end

local function lists_of(pairs_, below)
  local lists = {}
  for place, pair in ipairs(pairs_) do
    local key = Q .. ':rows:' .. pair[1] .. ':' .. pair[2]
    lists[place] = {key = key, ids = {}, at = 1, below = below}
  end
  return lists
end

local function matches(id)
  local where = ASK.where
  if not next(where) then return true end
  local job = row_of(id)
  if not job then return false end
  if where.states and not where.states[job.state] then return false end
  if where.tenants and not where.tenants[job.tenant] then return false end
  if where.coded and not job.error_code then return false end
  if where.unclaimed and job.phase == OWNED then return false end
  if where.codes and not one_of(where.codes, job.error_code) then return false end
  if where.categories and not one_of(where.categories, job.error_category) then return false end
  if where.created_from and job.created_at < where.created_from then return false end
  if where.created_before and job.created_at >= where.created_before then return false end
  if where.moved_before and job.moved_at >= where.moved_before then return false end
  if where.dedup_key and job.dedup_key ~= where.dedup_key then return false end
  if where.contains then
    local body = call('HGET', job_key(id), 'payload')
    if not body:find(where.contains, 1, true) then return false end
  end
  return true
end

-- Up to ``limit`` jobs below the cursor, and where to continue when not all were examined.
function OPS.jobs()
  local lists, found, looked = lists_of(ITEMS, ASK.cursor), {}, 0
  while #found < ASK.limit and looked < ASK.most_looked do
    local id = newer(lists)
    if not id then return {found, false} end
    looked = looked + 1
    ASK.last = id
    if matches(id) then found[#found + 1] = whole_of(id) end
  end
  return {found, ASK.last}
end

-- How many of the next jobs match, down to the id ``above``: [matching, examined, continue at].
function OPS.count()
  local lists, fitting, looked = lists_of(ITEMS, ASK.cursor), 0, 0
  while looked < ASK.most_looked do
    local id = newer(lists)
    if not id or id <= ASK.above then return {fitting, looked, false} end
    looked = looked + 1
    ASK.last = id
    if matches(id) then fitting = fitting + 1 end
  end
  return {fitting, looked, ASK.last}
end

-- What an action would return for each job now, and the key or slot that the job would take.
local function foreseen(id)
  local job = row_of(id)
  local move = choose(MOVES, job, {})
  local said = ASK.text and call('HGET', job_key(id), 'error_message')
  if not move then return {job.state, reason(MOVES, job, {}), said, false, 1} end
  if move.takes_slot then
    return {job.state, '', said, inside_key(move.to, job.tenant),
      free_slots(move.to, job.tenant, job.id)}
  end
  local wants = move.takes_key and job.dedup_key and key_of(job.tenant, job.dedup_key)
  return {job.state, '', said, wants or false, 1}
end

function OPS.foresee()
  if ASK.ids then
    local answers = {}
    for _, id in ipairs(ASK.ids) do
      if matches(id) and row_of(id) then answers[#answers + 1] = foreseen(id) end
    end
    return {answers, false}
  end
  local lists, answers, looked = lists_of(ITEMS, ASK.cursor), {}, 0
  while looked < ASK.most_looked do
    local id = newer(lists)
    if not id then return {answers, false} end
    looked = looked + 1
    ASK.last = id
    if matches(id) then answers[#answers + 1] = foreseen(id) end
  end
  return {answers, ASK.last}
end

-- Every id of the queue, in order, for a scan.
function OPS.ids()
  local ids = {}
  for _, state in ipairs(ITEMS) do
    for _, id in ipairs(call('ZRANGE', Q .. ':jobs:' .. state, 0, -1)) do ids[#ids + 1] = id end
  end
  table.sort(ids)
  return ids
end

-- The versions of jobs: [id, seq, number of notes].
local function head_of(id)
  local seq = call('HGET', job_key(id), 'seq')
  return seq and {id, tonumber(seq), call('LLEN', Q .. ':notes:' .. id)} or nil
end

function OPS.heads()
  local ids = ASK.state and call('ZRANGE', Q .. ':jobs:' .. ASK.state, ASK.first, ASK.last) or ITEMS
  local answers = {}
  for _, id in ipairs(ids) do answers[#answers + 1] = head_of(id) end
  return answers
end

function OPS.claimed() return call('ZCARD', Q .. ':leases') end

function OPS.count_waiting()
  local waiting = 0
  for _, queue in ipairs(call('SMEMBERS', 'kesin:queues')) do
    for _, state in ipairs(call('SMEMBERS', queue .. ':waits')) do
      for _, id in ipairs(call('ZRANGE', queue .. ':jobs:' .. state, 0, -1)) do
        local ours = queue == Q
        for _, parent in ipairs(ours and {} or call('HKEYS', parents_key(queue, id))) do
          ours = ours or call('EXISTS', job_key(parent)) == 1
        end
        if ours then waiting = waiting + 1 end
      end
    end
  end
  return waiting
end

function OPS.histories()
  local answers = {}
  for _, id in ipairs(ITEMS) do
    local found = whole_of(id)
    if found[1] then
      answers[#answers + 1] = {found, call('XRANGE', Q .. ':events:' .. id, '-', '+'),
        call('LRANGE', Q .. ':notes:' .. id, 0, -1), call('HKEYS', parents_key(Q, id))}
    end
  end
  return answers
end

function OPS.fact() return call('HGET', 'kesin:facts:' .. ASK.workload, ASK.name) end

function OPS.facts() return call('HGETALL', 'kesin:facts:' .. ASK.workload) end

local stopped = stopped_by_lock()
if stopped then return redis.error_reply(stopped) end
if LIFE and OP ~= 'declare' and call('EXISTS', Q .. ':lifecycle') == 0 then
  return redis.error_reply('KESINUNDECLARED Redis has forgotten the queue ' .. Q)
end
local done, answer = pcall(OPS[OP])
finished()
if done then return answer end
return type(answer) == 'table' and answer or redis.error_reply(answer)

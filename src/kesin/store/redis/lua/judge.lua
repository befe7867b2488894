-- The meaning of a move: its guards, its effects, and the reasons of refusals.

local function taken(name, job)
  local holder = call('GET', name)
  return holder and holder ~= job.id and holder or nil
end

local function rival(job)
  return job.dedup_key and taken(key_of(job.tenant, job.dedup_key), job) or nil
end

local function one_of(names, value) return value and names[value] or false end

local GUARDS = {
  due = function(g, j) return j.run_at and j.run_at <= NOW end,
  unclaimed = function(g, j) return j.phase ~= OWNED end,
  holds_claim = function(g, j, i) return j.phase == OWNED and j.claim_seq == (i.token or -1) end,
  lease_over = function(g, j) return j.phase == OWNED and j.lease_until <= NOW end,
  timer_over = function(g, j) return j.timer_at and j.timer_at <= NOW end,
  timer_not_over = function(g, j) return not j.timer_at or j.timer_at > NOW end,
  budget_left = function(g, j) return j.attempt_count - j.attempt_base < j.max_attempts end,
  budget_spent = function(g, j)
    return j.attempt_count - j.attempt_base >= (ASK.cap or j.max_attempts)
  end,
  retries_left = function(g, j) return j.retry_count < g.number end,
  code_in = function(g, j) return one_of(g.names, j.error_code) end,
  code_not_in = function(g, j) return not one_of(g.names, j.error_code) end,
  category_in = function(g, j) return one_of(g.names, j.error_category) end,
  returns_left = function(g, j) return j.return_count < LIFE.max_returns end,
  was_claimed = function(g, j) return j.claim_seq > j.payload_seq end,
  option = function(g) return (ASK.options[g.name] == true) == (g.number ~= 0) end,
  flag_set = function(g, j) return bit.band(j.flags, g.number) ~= 0 end,
  flag_not_set = function(g, j) return bit.band(j.flags, g.number) == 0 end,
  age_over = function(g, j) return j[g.name] and j[g.name] <= NOW - g.number end,
  slot_free = function(g, j) return free_slots(g.name, j.tenant, j.id) > 0 end,
  rate = function() return true end, -- the claim counts how many it may take
  parents_done = function(g, j)
    for _, mark in ipairs(marks_of(j)) do
      if mark ~= '1' then return false end
    end
    return true
  end,
  parents_failed = function(g, j)
    for _, mark in ipairs(marks_of(j)) do
      if mark == 'x' then return true end
    end
    return false
  end,
}

-- The first guard that fails.
local function stopped_by(move, job, item)
  for _, guard in ipairs(move.when) do
    if not GUARDS[guard.kind](guard, job, item) then return guard.kind end
  end
  return nil
end

local function takes_key(move, job) return move.takes_key and rival(job) end

local CLAIMS = {claim = true, peek = true}

local function takes_slot(move, job)
  if LIFE.limited and CLAIMS[OP] then return false end -- the claim counts them
  return move.takes_slot and free_slots(move.to, job.tenant, job.id) <= 0
end

local RETIRED -- states that no job may enter any more, read once a call

local function retired(state)
  if not RETIRED then
    RETIRED = {}
    for _, name in ipairs(call('SMEMBERS', Q .. ':retired')) do RETIRED[name] = true end
  end
  return RETIRED[state]
end

local function fits(move, job, item)
  if not move.sources[job.state] or stopped_by(move, job, item) then return false end
  if retired(move.to) then return false end
  if item.token and not move.fenced
    and not (job.phase == OWNED and job.claim_seq == item.token) then
    return false
  end
  return not takes_slot(move, job) and not takes_key(move, job)
end

local function choose(moves, job, item)
  for place, move in ipairs(moves) do
    if fits(move, job, item) then return move, place end
  end
  return nil
end

-- Whether the same claim already made one of these moves: only its response was lost.
local function finished_already(moves, job, item)
  local names = {}
  for _, move in ipairs(moves) do names[move.name] = true end
  local since = '(' .. text(math.max(item.token, 0)) .. '-0'
  local events = call('XRANGE', Q .. ':events:' .. job.id, since, '+')
  for _, event in ipairs(events) do
    local said = {}
    for place = 1, #event[2], 2 do said[event[2][place]] = event[2][place + 1] end
    if names[said.move] then return true end
    if said.claim == '1' then return false end
  end
  return false
end

local function reason(moves, job, item)
  local sources, targets, fenced = {}, {}, false
  for _, move in ipairs(moves) do
    for state in pairs(move.sources) do sources[state] = true end
    if LIFE.phase[move.to] then targets[move.to] = true end
    fenced = fenced or move.fenced
  end
  if item.token and finished_already(moves, job, item) then return 'already' end
  if not fenced and not item.token and targets[job.state] and not sources[job.state] then
    return 'already'
  end
  local lost = job.phase ~= OWNED or job.claim_seq ~= (item.token or -1)
  if (fenced or item.token) and lost then return 'stale' end
  if not sources[job.state] then return 'state' end
  for _, move in ipairs(moves) do
    if move.sources[job.state] then
      local guard = stopped_by(move, job, item)
      if guard then return guard end
      if move.takes_slot then return 'busy' end
      if move.takes_key then return 'duplicate' end
    end
  end
  return 'state'
end

-- salt · multiplier exceeds what a double holds exactly, so it is multiplied in two halves.
local function jitter(spread_us, tries, salt)
  if spread_us == 0 then return 0 end
  local high, low = math.floor(salt / 65536), salt % 65536
  local product = ((high * JITTER.multiplier) % JITTER.modulus) * 65536 + low * JITTER.multiplier
  local mixed = (product % JITTER.modulus + math.max(tries, 0) * JITTER.step) % JITTER.modulus
  return mixed % (spread_us + 1)
end

local function backoff(wait, job)
  local tries = wait.counts == 'retries' and job.retry_count
    or job.attempt_count - job.attempt_base - 1
  local delay = wait.delays_us[math.min(math.max(tries, 0), #wait.delays_us - 1) + 1]
  return delay + jitter(wait.jitter_us, tries, job.salt)
end

local function time_effects(move, job, item, at, new)
  if type(move.run_at) == 'table' then
    new.run_at = at + backoff(move.run_at, job)
  elseif move.run_at == 'now' then
    new.run_at = at
  elseif move.run_at == 'input' then
    new.run_at = item.run_at or at
  elseif move.run_at == 'clear' then
    new.run_at = false
  end
  if type(move.timer) == 'table' then
    local armed = not move.timer_for or one_of(move.timer_for, item.error_category)
    new.timer_at = armed and at + (move.timer.after_us or backoff(move.timer, job)) or false
  elseif move.timer == 'clear' then
    new.timer_at = false
  end
  for _, column in ipairs(move.stamp) do new[column] = at end
  for _, column in ipairs(move.unstamp) do new[column] = false end
  for _, column in ipairs(move.stamp_input) do new[column] = item[column] or false end
end

local function counter_effects(move, job, item, new)
  if move.attempt == 'count' then
    new.attempt_count = job.attempt_count + 1
  elseif move.attempt == 'return' then
    new.attempt_base = job.attempt_base + 1
    if move.returns then new.return_count = job.return_count + 1 end
  elseif move.attempt == 'renew' then
    new.attempt_base = job.attempt_count
    new.return_count = 0
    new.max_attempts = item.max_attempts or job.max_attempts
  end
  if move.retry == 'count' then new.retry_count = job.retry_count + 1 end
end

local function error_effects(move, item, new)
  for place, column in ipairs(ERROR) do
    if type(move.error) == 'table' then
      new[column] = move.error[place]
    elseif move.error == 'record' then
      new[column] = item[column] or false
    elseif move.error == 'clear' then
      new[column] = false
    end
  end
end

-- Makes the move; returns the job afterwards.
local function make(move, job, item)
  local at = math.max(NOW, job.moved_at)
  local to = move.to == '=' and job.state or move.to
  local new = {
    state = to, move = move.name, actor = ASK.actor, seq = job.seq + 1, moved_at = at,
    note = item.note or false, new_payload = false,
  }
  local owned, claim = job.phase == OWNED, -1
  if move.claim == 'take' then
    owned, claim = true, 1
    new.worker, new.claimed_at, new.claim_seq = ASK.worker, at, job.seq + 1
    new.lease_until = at + ASK.lease_us
  elseif move.claim == 'drop' then
    owned, claim = false, 0
    new.worker, new.claimed_at, new.lease_until = false, false, false
  end
  new.phase = owned and OWNED or LIFE.phase[to]
  counter_effects(move, job, item, new)
  error_effects(move, item, new)
  time_effects(move, job, item, at, new)
  if move.result == 'record' then new.result = item.result or false end
  if move.payload == 'replace' then
    new.payload, new.new_payload, new.payload_seq = item.payload, item.payload, job.seq + 1
  end
  if move.priority == 'input' then new.priority = item.priority end
  if move.flags ~= 0 then new.flags = bit.bor(job.flags, move.flags) end
  return write(job, new, LIFE.masks[table.concat({move.name, job.state, to}, SEP)], claim)
end

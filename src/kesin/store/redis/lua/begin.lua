-- The start of the script: the arguments, the lock, and writes that can be undone.
--
-- Redis runs one script at a time and each completely, so a call is atomic by itself. Several
-- calls form one transaction through a lock that all other scripts respect, and a list of commands
-- that undo what was done under it. If the holder dies, the next caller rolls its transaction
-- back after the timeout.

local call, format = redis.call, string.format
local OP = ARGV[1]
local ASK = cjson.decode(ARGV[2])
local LIFE = ARGV[3] ~= '' and cjson.decode(ARGV[3]) or nil
local MOVES = ARGV[4] ~= '' and cjson.decode(ARGV[4]) or nil
local ITEMS = ARGV[5] ~= '' and cjson.decode(ARGV[5]) or {}
local Q = ASK.queue
local LOCK, UNDO = 'kesin:lock', 'kesin:undo'
local SEP = '\31'
local READY, OWNED = 0, 1
local ENDS = {commit = true, abandon = true, undo = true} -- allowed even when Redis is out of memory

local function clock()
  local t = call('TIME')
  return tonumber(t[1]) * 1000000 + tonumber(t[2])
end

local NOW = ASK.now or clock()

-- All numbers become text here: Lua itself would write 1.7e+15.
local function text(value)
  if type(value) == 'number' then return format('%.0f', value) end
  return value
end

local function undo(keep)
  while call('LLEN', UNDO) > keep do
    call(unpack(cmsgpack.unpack(call('RPOP', UNDO))))
  end
end

local function stopped_by_lock()
  local held = call('HMGET', LOCK, 'token', 'until')
  if held[1] and held[1] == ASK.tx then
    if not ENDS[OP] then call('HSET', LOCK, 'until', text(clock() + ASK.hold_us)) end
    return nil
  end
  if held[1] and tonumber(held[2]) > clock() then
    if not ASK.tx then return 'KESINBUSY another transaction is under way' end
    return 'KESINLOST the transaction took too long and was undone'
  end
  if held[1] then
    undo(0)
    call('DEL', LOCK)
  end
  return ASK.tx and 'KESINLOST the transaction took too long and was undone' or nil
end

-- The undo commands and the counters of this call are written once, at its end: see finished().
local PENDING, COUNTS, LATEST = {}, {}, {}

local function later(...)
  PENDING[#PENDING + 1] = cmsgpack.pack({...})
end

-- Saves the complete old value of a small key.
local function keep(key)
  if not ASK.tx then return end
  local before = call('DUMP', key)
  if before then
    later('RESTORE', key, '0', before, 'REPLACE')
  else
    later('DEL', key)
  end
end

local function zadd(key, score, member)
  if ASK.tx then
    local before = call('ZSCORE', key, member)
    if before then later('ZADD', key, before, member) else later('ZREM', key, member) end
  end
  call('ZADD', key, text(score), member)
end

local function zrem(key, member)
  if ASK.tx then
    local before = call('ZSCORE', key, member)
    if before then later('ZADD', key, before, member) end
  end
  call('ZREM', key, member)
end

local function sadd(key, member)
  if call('SADD', key, member) == 1 and ASK.tx then later('SREM', key, member) end
end

local function srem(key, member)
  if call('SREM', key, member) == 1 and ASK.tx then later('SADD', key, member) end
end

local function hset_one(key, name, value)
  if ASK.tx then
    local before = call('HGET', key, name)
    if before then later('HSET', key, name, before) else later('HDEL', key, name) end
  end
  call('HSET', key, name, value)
end

local function count(flow, at)
  local field = table.concat(flow, SEP)
  COUNTS[field] = (COUNTS[field] or 0) + 1
  if not LATEST[field] or LATEST[field] < at then LATEST[field] = at end
end

local function finished()
  for field, n in pairs(COUNTS) do
    local before = call('HGET', Q .. ':flow', field) or '0'
    hset_one(Q .. ':flow', field, text(tonumber(before) + n))
    local last = call('HGET', Q .. ':flow_at', field)
    if not last or tonumber(last) < LATEST[field] then
      hset_one(Q .. ':flow_at', field, text(LATEST[field]))
    end
  end
  for first = 1, #PENDING, 1000 do
    call('RPUSH', UNDO, unpack(PENDING, first, math.min(first + 999, #PENDING)))
  end
end

local function note(job_id, kind, actor, details)
  local key = Q .. ':notes' .. (job_id and ':' .. job_id or '')
  keep(key)
  call('RPUSH', key, cjson.encode({text(NOW), kind, actor, details or cjson.null}))
end

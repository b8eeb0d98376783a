-- Keeps or drops one entry of a registry, all of it or nothing, and says so to whoever follows.
--
-- KEYS  rows (hash: id -> row), ends (sorted set: id by when it ends, ms), state (hash: epoch, n), log (stream)
-- ARGV  "put" | "drop" | "look", id, row, ends (ms), most, epoch (for a registry that begins)
-- Returns {done, epoch, mended, n}: done is 1, 0 (nothing to drop, or only looked), or -1 (there are `most` already);
-- mended is 1 where one of the records was not ours; n of who looked. What is not ours is dropped, and with rows or
-- their ends goes the state, so that everybody sees another epoch and puts back what it knows.

-- include ours

local mended = 0

local function mend(key)
  redis.call('DEL', key)
  mended = 1
end

local whole = is_ours(KEYS[1], 'HLEN')
whole = is_ours(KEYS[2], 'ZREVRANGE', 0, 0) and whole
if not is_ours(KEYS[3], 'HLEN') or not is_ours(KEYS[4], 'XRANGE', '-', '+', 'COUNT', 1) then mended = 1 end
local known = redis.call('HMGET', KEYS[3], 'epoch', 'n')
local counted = known[1] and known[2] and #known[2] < 16 and string.match(known[2], '^%d+$')
if not whole or (not counted and (known[1] or known[2])) then
  mend(KEYS[3])
  counted = nil
end
if ARGV[1] == 'look' then return {0, counted and known[1] or '', mended, counted or '0'} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local over = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', now), 'LIMIT', 0, 1000)
for _, id in ipairs(over) do
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', KEYS[2], id)
end

local id, row = ARGV[2], ''
if ARGV[1] == 'put' then
  if redis.call('HEXISTS', KEYS[1], id) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[5]) then
    return {-1, '', mended}
  end
  row = ARGV[3]
  redis.call('HSET', KEYS[1], id, row)
  redis.call('ZADD', KEYS[2], ARGV[4], id)
else
  redis.call('ZREM', KEYS[2], id)
  if redis.call('HDEL', KEYS[1], id) == 0 then return {0, '', mended} end
end

redis.call('HSETNX', KEYS[3], 'epoch', ARGV[6])
local n = redis.call('HINCRBY', KEYS[3], 'n', 1)
if n == 1 then redis.call('DEL', KEYS[4]) end
local function tell()
  return redis.pcall('XADD', KEYS[4], 'MAXLEN', '~', 1000, string.format('%d-1', n), 'id', id, 'row', row)
end
if type(tell()) == 'table' then -- an entry of somebody else stands where ours belongs
  mend(KEYS[4])
  tell()
end

-- Every record ends: a day after the last entry does.
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local ends = math.max(now, tonumber(last[2] or '0')) + 86400000
for _, key in ipairs(KEYS) do
  redis.call('PEXPIREAT', key, string.format('%d', ends))
end
return {1, redis.call('HGET', KEYS[3], 'epoch'), mended}

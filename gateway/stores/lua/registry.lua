-- Keeps or drops one entry of a registry, all of it or nothing, and says so to whoever follows.
--
-- KEYS  rows (hash: id -> row), ends (sorted set: id by when it ends, ms), state (hash: epoch, n), log (stream)
-- ARGV  "put" | "drop", id, row, ends (ms), most, epoch (for a registry that begins)
-- Returns {done, epoch}: done is 1, 0 (nothing to drop), or -1 (there are `most` already).

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
    return {-1, ''}
  end
  row = ARGV[3]
  redis.call('HSET', KEYS[1], id, row)
  redis.call('ZADD', KEYS[2], ARGV[4], id)
else
  redis.call('ZREM', KEYS[2], id)
  if redis.call('HDEL', KEYS[1], id) == 0 then return {0, ''} end
end

redis.call('HSETNX', KEYS[3], 'epoch', ARGV[6])
local n = redis.call('HINCRBY', KEYS[3], 'n', 1)
if n == 1 then redis.call('DEL', KEYS[4]) end
redis.call('XADD', KEYS[4], 'MAXLEN', '~', 1000, string.format('%d-1', n), 'id', id, 'row', row)

-- Every record ends: a day after the last entry does.
local last = redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local ends = math.max(now, tonumber(last[2] or '0')) + 86400000
for _, key in ipairs(KEYS) do
  redis.call('PEXPIREAT', key, string.format('%d', ends))
end
return {1, redis.call('HGET', KEYS[3], 'epoch')}

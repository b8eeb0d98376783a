-- Writes what the one who leads found out, unless another leads by now.
--
-- KEYS  fence (the highest token that wrote beside it), then records (hashes), all of one tag
-- ARGV  token, seconds that the fence is kept; then of each record in turn: seconds it is kept, number of fields to set,
--       number of fields to drop, then field and value of each, then the fields to drop
-- Returns 0, or the token that is in the way; -1 where something else stood in place of a record, and is gone.

-- include ours

local fence = is_ours(KEYS[1], 'GET') and redis.call('GET', KEYS[1]) or '0'
local seen = #fence < 16 and string.match(fence, '^%d+$') and tonumber(fence) or 0
if tonumber(ARGV[1]) < seen then return seen end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])

local at, mended = 3, 0
for number = 2, #KEYS do
  if not is_ours(KEYS[number], 'HLEN') then mended = -1 end
  local sets, drops = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local first = at + 3
  local last = first + 2 * sets - 1
  for from = first, last, 200 do
    redis.call('HSET', KEYS[number], unpack(ARGV, from, math.min(from + 199, last)))
  end
  for field = last + 1, last + drops do
    redis.call('HDEL', KEYS[number], ARGV[field])
  end
  redis.call('EXPIRE', KEYS[number], ARGV[at])
  at = last + drops + 1
end
return mended

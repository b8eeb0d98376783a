-- Lets one process lead at a time: takes the lease if it is free, and makes it longer for who has it.
--
-- KEYS  lease (string "process token"), counter (the last token given)
-- ARGV  process, lease (ms), least token, seconds that the counter is kept; a lease of 0 gives it back
-- Returns the token of who asks, or 0 while another leads. What is neither a lease nor a number is written anew.

-- include ours

is_ours(KEYS[1], 'GET')
local held = redis.call('GET', KEYS[1])
local who, token = string.match(held or '', '^(%S+) (%d+)$')
if who then
  if who ~= ARGV[1] then return 0 end
  if ARGV[2] == '0' then
    redis.call('DEL', KEYS[1])
    return 0
  end
  if tonumber(token) >= tonumber(ARGV[3]) then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return tonumber(token)
  end
end
if ARGV[2] == '0' then return 0 end
local last = is_ours(KEYS[2], 'GET') and redis.call('GET', KEYS[2])
if last and not (#last < 16 and string.match(last, '^%d+$')) then redis.call('DEL', KEYS[2]) end
token = math.max(redis.call('INCR', KEYS[2]), tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%d', token), 'EX', ARGV[4])
redis.call('SET', KEYS[1], string.format('%s %d', ARGV[1], token), 'PX', ARGV[2])
return token

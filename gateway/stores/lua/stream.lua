-- Adds an entry to a stream of what instances tell each other, and returns what was added after another entry.
--
-- KEYS[1]: the stream. ARGV: instance, number, body; the entry after which to read ("" to read nothing yet), for how
-- many milliseconds entries are kept, the most entries to read. The answer: the id of the last entry read, then
-- instance, number and body of each.
--
-- An id that is later than the last one is of a stream that is gone: then everything there is has not been read.

local MOST_KEPT = 60

local function parts(id)
  local ms, count = string.match(id, "^(%d+)-(%d+)$")
  return tonumber(ms), tonumber(count)
end

local function later(one, other)
  local ms, count = parts(one)
  local other_ms, other_count = parts(other)
  return ms > other_ms or (ms == other_ms and count > other_count)
end

local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local oldest = string.format("%d", now - tonumber(ARGV[5]))
local last = redis.call("XADD", KEYS[1], "MINID", "=", oldest, "*", "i", ARGV[1], "n", ARGV[2], "b", ARGV[3])
redis.call("EXPIRE", KEYS[1], MOST_KEPT)
local answer = { last }
local after = ARGV[4]
if after ~= "" then
  if later(after, last) then
    after = "0-0"
  end
  local found = redis.call("XRANGE", KEYS[1], "(" .. after, "+", "COUNT", ARGV[6])
  for _, entry in ipairs(found) do
    answer[1] = entry[1]
    answer[#answer + 1] = entry[2][2]
    answer[#answer + 1] = entry[2][4]
    answer[#answer + 1] = entry[2][6]
  end
end
return answer

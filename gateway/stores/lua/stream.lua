-- Adds entries to a stream of what instances tell each other, and returns what was added after another entry.
--
-- KEYS[1]: the stream. ARGV: instance; the entry after which to read ("" for one that begins); since when (the server's
-- ms; of one that begins: for how many ms) it counts; for how many ms entries are kept; the most entries to read; the
-- last entry that it added ("" for none, or to add all that follows whatever has become of that); then number, body and
-- "" of each entry to add, or instead of "" the ms at which it was told first. The answer: 1 if the last entry that it
-- added is gone, and nothing was done; 1 if something else was in the way and was dropped; the last entry added; the
-- last one read; since when it counts; how many entries were nobody's; then instance, number and body of each.
--
-- An id that is later than the last one is of a stream that is gone: then everything there is has not been read. Ids
-- far ahead of the clock would never grow old: a stream of such is begun anew.

-- include ours

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

-- Instance, number, body, and when it was told first ("" if it says so itself); nil of what nobody of us wrote.
local function read(fields)
  if fields[1] == "i" and fields[3] == "n" and fields[5] == "b" and string.match(fields[4], "^%d+$") and #fields[4] < 16 then
    return fields[2], fields[4], fields[6], fields[7] == "t" and fields[8] or ""
  end
end

local key, kept, own = KEYS[1], tonumber(ARGV[4]), ARGV[6]
local time = redis.call("TIME")
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local oldest = string.format("%d", now - kept)
local after, since = ARGV[2], tonumber(ARGV[3])
if after == "" then
  since = now - since
  after = string.format("%d-0", since)
end

local function add(number, body, told)
  local first = told == "" and {} or { "t", told }
  return redis.pcall("XADD", key, "MINID", "=", oldest, "*", "i", ARGV[1], "n", number, "b", body, unpack(first))
end

local replaced = is_ours(key, "XRANGE", "-", "+", "COUNT", 1) and 0 or 1
if own ~= "" and #redis.call("XRANGE", key, own, own) == 0 then
  return { 1, replaced, own, ARGV[2], ARGV[3], 0 }
end

local last = add(ARGV[7], ARGV[8], ARGV[9])
if type(last) == "table" and not string.find(last.err, "exhausted", 1, true) then
  return last
end
if type(last) == "table" or parts(last) > now + kept then
  redis.call("DEL", key)
  if own ~= "" then
    return { 1, 1, own, ARGV[2], ARGV[3], 0 }
  end
  replaced = 1
  last = add(ARGV[7], ARGV[8], ARGV[9])
end
for at = 10, #ARGV, 3 do
  last = add(ARGV[at], ARGV[at + 1], ARGV[at + 2])
end
redis.call("EXPIRE", key, MOST_KEPT)

local answer = { 0, replaced, last, last, string.format("%d", since), 0 }
if later(after, last) then
  after = "0-0"
end
for number, entry in ipairs(redis.call("XRANGE", key, "(" .. after, "+", "COUNT", ARGV[5])) do
  answer[4] = entry[1]
  local instance, count, body, told = read(entry[2])
  if not instance then
    answer[6] = answer[6] + 1
  elseif told == "" or (tonumber(told) or 0) >= since then
    answer[#answer + 1] = instance
    answer[#answer + 1] = count
    answer[#answer + 1] = body
  end
end
return answer

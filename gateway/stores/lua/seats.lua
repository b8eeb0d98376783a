-- include record
-- The twin of policies/kernels/seats.py, and the call that renews a process's entry of each of many limits of one slot.
--
-- KEYS: the records. ARGV[1]: process, lease time in microseconds. ARGV[2]: for each key held, want, limit. The answer
-- has allowance and wanted-by-others (0 or 1) for each key. All are doubles; see gateway/stores/leased/codec.py.
--
-- A record: process, held, want and until of each living entry, by process in ascending order.

local HOLDER = "<dddd"
local CLAIM = "<ddd"
local ROOM = "<dd"

-- The table that `value` holds, without the entries whose lease has ended; empty if it holds none.
local function read_table(value, ttl, now)
  local holders = {}
  local count = value and #value / 32 or 0
  if count % 1 ~= 0 then
    return holders
  end
  for index = 1, count do
    local process, held, want, ends = struct.unpack(HOLDER, value, 32 * index - 31)
    if not finite(process + held + want + ends) or math.min(held, want) < 0 then
      return {}
    end
    if ends > now then
      holders[#holders + 1] = { process = process, held = held, want = want, ends = math.min(ends, now + ttl) }
    end
  end
  return holders
end

local function write_table(holders)
  local parts = {}
  for index, holder in ipairs(holders) do
    parts[index] = struct.pack(HOLDER, holder.process, holder.held, holder.want, holder.ends)
  end
  return table.concat(parts)
end

local function enrol(holders, process, want, ends)
  local place = 1
  for _, holder in ipairs(holders) do
    if holder.process == process then
      holder.want, holder.ends = want, ends
      return holder
    end
    if holder.process < process then
      place = place + 1
    end
  end
  local mine = { process = process, held = 0, want = want, ends = ends }
  table.insert(holders, place, mine)
  return mine
end

-- Those of `holders` that want more than `share`, and the least that one of them wants.
local function unmet_by(holders, share)
  local unmet, least = {}, math.huge
  for _, holder in ipairs(holders) do
    if holder.want > share then
      unmet[#unmet + 1] = holder
      least = math.min(least, holder.want)
    end
  end
  return unmet, least
end

local function part_of(holders, mine, limit, now)
  local left, share = limit, 0
  local unmet, least = unmet_by(holders, 0)
  while #unmet > 0 and left >= #unmet do
    local step = math.min(math.floor(left / #unmet), least - share)
    share = share + step
    left = left - step * #unmet
    unmet, least = unmet_by(unmet, share)
  end
  for index, holder in ipairs(unmet) do
    if holder == mine then
      local turn = (index - 1 - math.floor(now / SECOND)) % #unmet
      return share + (turn < left and 1 or 0)
    end
  end
  return mine.want
end

local function allowance(holders, process, held, want, limit, ttl, now)
  local mine = enrol(holders, process, want, now + ttl)
  local taken, wanted = 0, 0
  for _, other in ipairs(holders) do
    if other ~= mine then
      taken = taken + other.held
      if other.want > other.held then
        wanted = 1
      end
    end
  end
  local allowed = math.max(0, math.min(want, part_of(holders, mine, limit, now), limit - taken))
  mine.held = math.max(held, allowed)
  if mine.held <= 0 and want <= 0 then
    for index, holder in ipairs(holders) do
      if holder == mine then
        table.remove(holders, index)
        break
      end
    end
  end
  return allowed, wanted
end

local function step(key, process, ttl, packed, index, now)
  local held, want, limit = struct.unpack(CLAIM, packed, 24 * index - 23)
  local holders = read_table(fetch(key), ttl, now)
  local answer = struct.pack(ROOM, allowance(holders, process, held, want, limit, ttl, now))
  local last = 0
  for _, holder in ipairs(holders) do
    last = math.max(last, holder.ends)
  end
  if last > now then
    save(key, write_table(holders), last - now)
  else
    redis.call("DEL", key)
  end
  return answer
end

local now = clock()
local process, ttl = struct.unpack("<dd", ARGV[1])
local answers = {}
for index, key in ipairs(KEYS) do
  answers[index] = step(key, process, ttl, ARGV[2], index, now)
end
return table.concat(answers)

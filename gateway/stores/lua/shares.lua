-- include record
-- The twin of policies/kernels/rates.py, and the call that renews a process's entry.
--
-- KEYS[1]: the record, a hash of one field per process. ARGV[1]: process, lease time and the time that a bucket takes to
-- be full, in microseconds, number of claims. ARGV[2]: for each claim pool, capacity, held, want. ARGV[3]: the report;
-- nothing leaves the last one. The answer: one string of doubles (1 if the record was begun, number of processes, what
-- each pool gives), then the reports of the others.
--
-- A field: until and number of claims; pool, held and want of each; the report.

local HEAD = "<dddd"
local CLAIM = "<dddd"
local FIELD = "<dd"
local HOLD = "<ddd"
local MAX_CLAIMS = 256

-- The entry that `value` holds, or nil if it holds none.
local function read_entry(value)
  if #value < 16 then
    return nil
  end
  local ends, count = struct.unpack(FIELD, value)
  if not (finite(ends) and count >= 0 and count <= MAX_CLAIMS and count % 1 == 0 and #value >= 16 + 24 * count) then
    return nil
  end
  local entry = { ends = ends, held = {}, want = {}, report = value:sub(17 + 24 * count) }
  for index = 1, count do
    local pool, held, want = struct.unpack(HOLD, value, 24 * index - 7)
    if not finite(held + want) then
      return nil
    end
    entry.held[pool], entry.want[pool] = held, want
  end
  return entry
end

local function write_entry(entry, claims)
  local parts = { struct.pack(FIELD, entry.ends, #claims) }
  for index, claim in ipairs(claims) do
    parts[index + 1] = struct.pack(HOLD, claim.pool, entry.held[claim.pool], entry.want[claim.pool])
  end
  parts[#parts + 1] = entry.report
  return table.concat(parts)
end

-- The living entries of the record but that of `process`, in ascending order, and that one; fields that ended go.
local function read_table(key, process, ttl, now)
  local fields = redis.pcall("HGETALL", key)
  if fields.err then
    redis.call("DEL", key)
    fields = {}
  end
  local others, mine = {}, nil
  for index = 1, #fields, 2 do
    local entry = read_entry(fields[index + 1])
    if entry == nil or entry.ends <= now then
      redis.call("HDEL", key, fields[index])
    else
      if ttl > 0 and entry.ends > now + ttl then
        redis.call("HSET", key, fields[index], struct.pack("<d", now + ttl) .. fields[index + 1]:sub(9))
      end
      entry.process = tonumber(fields[index])
      if entry.process == process then
        mine = entry
      else
        others[#others + 1] = entry
      end
    end
  end
  table.sort(others, function(a, b)
    return a.process < b.process
  end)
  return others, mine or { held = {}, want = {}, report = "" }, #fields == 0
end

local function read_claims(packed, count)
  local claims = {}
  for index = 1, count do
    local pool, capacity, held, want = struct.unpack(CLAIM, packed, 32 * index - 31)
    claims[index] = { pool = pool, capacity = capacity, held = held, want = want }
  end
  return claims
end

local function grant(claim, others)
  local taken, wanted = 0, claim.want
  for _, other in ipairs(others) do
    taken = taken + (other.held[claim.pool] or 0)
    wanted = wanted + (other.want[claim.pool] or 0)
  end
  local part = claim.want
  if wanted > claim.capacity then
    part = claim.want * claim.capacity / wanted
  end
  return math.max(0, math.min(part, claim.capacity - taken))
end

local function step(key, head, packed, report, now)
  local process, ttl, full, count = struct.unpack(HEAD, head)
  local others, mine, fresh = read_table(key, process, ttl, now)
  local answer = { struct.pack("<d", fresh and 1 or 0) }
  local claims = ttl > 0 and read_claims(packed, count) or {}
  mine.ends = now + ttl
  mine.held, mine.want = {}, {}
  answer[2] = struct.pack("<d", #others + (ttl > 0 and 1 or 0))
  if ttl <= 0 then
    mine.report = ""
  elseif report ~= "" then
    mine.report = report
  end
  for index, claim in ipairs(claims) do
    local granted = grant(claim, others)
    answer[index + 2] = struct.pack("<d", granted)
    mine.want[claim.pool] = claim.want
    mine.held[claim.pool] = math.max(claim.held, granted)
  end
  redis.call("HSET", key, string.format("%.0f", process), write_entry(mine, claims))
  redis.call("PEXPIRE", key, string.format("%.0f", math.ceil(math.max(ttl, full, SECOND) / 1000)))
  local reply = { table.concat(answer) }
  for index, other in ipairs(others) do
    reply[index + 1] = ttl > 0 and other.report or nil
  end
  return reply
end

local now = clock()
return step(KEYS[1], ARGV[1], ARGV[2], ARGV[3], now)

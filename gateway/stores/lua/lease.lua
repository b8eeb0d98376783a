-- include record
-- include gcra
-- The twin of policies/kernels/lease.py, and the call that does one step on each of many buckets of one slot.
--
-- KEYS: the records. ARGV[1]: process, dearest cost. ARGV[2]: for each key rate_us, burst, and the nine numbers of a
-- `Want`. The answer has the six numbers of a `Grant` for each key. All are doubles; see
-- gateway/stores/leased/codec.py.
--
-- A record: rate_us, burst, level, stamp, high_at, low_until, want, want_until, credit, credit_at (see gcra.py), seen;
-- then process, want, lacks, due and at of each asker. A bucket without a rate has an endless level: it is written as 0.

local TICK = 100000
local RECENT = 350000
local MAX_ASKERS = 32
local SLACK = 2 * SECOND
local FAR = 9000000000000000
local IDLE = 3600 * SECOND

local HEAD = "<ddddddddddd"
local ASKER = "<ddddd"
local WANT = "<ddddddddddd"
local GRANT = "<dddddd"

-- The record that `value` holds, or nil if it holds none.
local function read_record(value)
  local count = value and (#value - 88) / 40
  if not count or count < 0 or count > MAX_ASKERS or count % 1 ~= 0 then
    return nil
  end
  local rate_us, burst, level, stamp, high_at, low_until, want, want_until, credit, credit_at, seen =
    struct.unpack(HEAD, value)
  local instants = stamp + high_at + low_until + want_until + credit_at + seen
  if not finite(rate_us + burst + level + want + credit + instants) then
    return nil
  end
  if math.min(rate_us, burst, level, want, credit, seen) < 0 or math.max(stamp, high_at, credit_at) > seen then
    return nil
  end
  if seen > FAR then
    return nil
  end
  local bucket = {
    rate_us = rate_us,
    burst = burst,
    level = rate_us > 0 and level or math.huge,
    stamp = stamp,
    high_at = high_at,
    low_until = low_until,
    want = want,
    want_until = want_until,
    credit = credit,
    credit_at = credit_at,
  }
  local askers = {}
  for index = 1, count do
    local process, wanted, lacks, owed, at = struct.unpack(ASKER, value, 49 + 40 * index)
    if not finite(process + wanted + lacks + owed + at) or wanted <= 0 or lacks > wanted or at > seen then
      return nil
    end
    askers[index] = { process = process, want = wanted, lacks = lacks, due = owed, at = at }
  end
  return { bucket = bucket, seen = seen, askers = askers }
end

local function write_record(record)
  local bucket = record.bucket
  local parts = {
    struct.pack(
      HEAD, bucket.rate_us, bucket.burst, bucket.rate_us > 0 and bucket.level or 0, bucket.stamp, bucket.high_at,
      bucket.low_until, bucket.want, bucket.want_until, bucket.credit, bucket.credit_at, record.seen
    ),
  }
  for index, asker in ipairs(record.askers) do
    parts[index + 1] = struct.pack(ASKER, asker.process, asker.want, asker.lacks, asker.due, asker.at)
  end
  return table.concat(parts)
end

local function step_back(record, step)
  local bucket = record.bucket
  record.seen = record.seen + step
  bucket.stamp = bucket.stamp + step
  bucket.high_at = bucket.high_at + step
  bucket.low_until = bucket.low_until + step
  bucket.want_until = bucket.want_until + step
  bucket.credit_at = bucket.credit_at + step
  for _, asker in ipairs(record.askers) do
    asker.at = asker.at + step
  end
end

local function accrue(record, now)
  local askers, wanted = {}, 0
  for _, asker in ipairs(record.askers) do
    if now - asker.at <= RECENT then
      askers[#askers + 1] = asker
      wanted = wanted + asker.want
    end
  end
  if wanted > 0 and record.bucket.rate_us > 0 then
    local inflow = level_at(record.bucket, record.seen) - level_at(record.bucket, now)
    for _, asker in ipairs(askers) do
      asker.due = math.min(asker.due + inflow * asker.want / wanted, asker.lacks)
    end
  end
  record.askers = askers
  record.seen = now
end

local function heal(bucket, dearest, floor, now)
  if bucket.rate_us > 0 then
    local highest = math.max(bucket.burst, dearest)
    if not (bucket.level <= highest) then
      bucket.level = highest
    end
  end
  if not (bucket.want <= dearest) then
    bucket.want = dearest
  end
  local pace = floor * bucket.rate_us
  local latest = pace > 0 and math.min(now + SECOND + math.floor(JITTER * dearest / pace), FAR) or now
  bucket.low_until = math.min(bucket.low_until, latest)
  bucket.want_until = math.min(bucket.want_until, latest)
end

local function prepare(record, rate_us, burst, want, dearest, now)
  if not record then
    local bucket = new_bucket(rate_us, burst, now)
    if rate_us > 0 then
      bucket.level = math.min(want.seed, burst)
    end
    return { bucket = bucket, seen = now, askers = {} }
  end
  local bucket = record.bucket
  if now < record.seen then
    step_back(record, now - record.seen)
  end
  accrue(record, now)
  if bucket.rate_us ~= rate_us or bucket.burst ~= burst then
    resize(bucket, rate_us, burst, now)
  end
  heal(bucket, math.max(dearest, want.high_cost, want.low_cost), want.floor, now)
  return record
end

local function enrol(record, process, want, now)
  local wanted = math.max(want.high, want.high_cost) + math.max(want.low, want.low_cost)
  local askers = record.askers
  local place, oldest
  for index, asker in ipairs(askers) do
    if asker.process == process then
      place = index
    end
    if not oldest or asker.at < askers[oldest].at then
      oldest = index
    end
  end
  if wanted <= 0 then
    if place then
      table.remove(askers, place)
    end
    return { process = process, want = 0, lacks = 0, due = 0, at = now }
  end
  if place then
    local found = askers[place]
    found.want, found.lacks = wanted, wanted
    found.due = math.min(found.due, wanted)
    found.at = now
    return found
  end
  if #askers >= MAX_ASKERS then
    table.remove(askers, oldest)
  end
  local owed = math.min(math.max(want.high_cost, want.low_cost), math.max(1, record.bucket.rate_us * TICK))
  local found = { process = process, want = wanted, lacks = wanted, due = owed, at = now }
  askers[#askers + 1] = found
  return found
end

local function claims_beside(record, asker)
  local claims, first = 0, true
  for _, other in ipairs(record.askers) do
    if other ~= asker and other.due > 0 then
      claims = claims + other.due
      if other.due * asker.want > asker.due * other.want then
        first = false
      end
    end
  end
  return claims, first
end

local function whole(spare, cost)
  if spare <= 0 then
    return 0
  end
  local quantum = cost > 0 and cost < 1 and cost or 1
  return math.floor(spare / quantum) * quantum
end

local function turn_of(record, asker, part, claims, now)
  local bucket = record.bucket
  local wanted = 0
  for _, other in ipairs(record.askers) do
    wanted = wanted + other.want
  end
  local lacks = part.cost + claims + kept(bucket, part, now) - (bucket.burst - level_at(bucket, now))
  local turn = math.ceil(lacks * wanted / (bucket.rate_us * asker.want))
  return math.max(1, math.min(turn, RECENT))
end

local function grant(record, asker, part, wanted, now)
  local bucket, cost = record.bucket, part.cost
  local level = level_at(bucket, now)
  local leave = kept(bucket, part, now)
  local claims, first = claims_beside(record, asker)
  local guard = leave
  if part.low and now < bucket.high_at + SECOND then
    guard = part.reserve
  end
  local spare = bucket.burst - level - guard - claims
  local fits = cost > 0 and level <= room(bucket, part, leave)
  local turn = first or cost <= asker.due or level <= 0 or cost <= bucket.burst - level - leave - claims
  local granted = fits and turn
  local units
  if granted then
    units = math.max(cost, wanted <= spare and wanted or whole(spare, cost))
  else
    local beside = wanted - cost
    units = beside <= spare and beside or whole(spare, cost)
  end
  units = math.max(0, units)
  if units > 0 then
    take(bucket, { cost = units, low = part.low, reserve = part.reserve, floor = part.floor }, now)
    asker.lacks = math.max(0, asker.lacks - units)
    asker.due = math.max(math.min(asker.due - units, asker.lacks), -asker.want)
  end
  if granted or cost <= 0 then
    return units, 0
  end
  if fits then
    return units, turn_of(record, asker, part, claims, now)
  end
  return units, refuse(bucket, part, now)
end

local function lease(record, process, want, now)
  local bucket = record.bucket
  if want.back > 0 then
    give_back(bucket, { cost = want.back, low = false, reserve = 0, floor = 0 }, now)
  end
  if want.spent > 0 then
    local level = level_at(bucket, now)
    bucket.level = math.max(level, math.min(level + want.spent, bucket.burst))
    bucket.stamp = math.max(bucket.stamp, now)
  end
  local asker = enrol(record, process, want, now)
  local high, high_wait, low, low_wait = 0, 0, 0, 0
  if want.high > 0 or want.high_cost > 0 then
    local part = { cost = want.high_cost, low = false, reserve = 0, floor = want.floor }
    demand(bucket, part, now)
    high, high_wait = grant(record, asker, part, want.high, now)
  end
  if want.low > 0 or want.low_cost > 0 then
    local part = { cost = want.low_cost, low = true, reserve = want.reserve, floor = want.floor }
    low, low_wait = grant(record, asker, part, want.low, now)
  end
  local tokens = bucket.burst - level_at(bucket, now)
  local left_high = math.max(0, tokens - due(bucket, want.floor, now))
  local left_low = math.max(0, now < bucket.high_at + SECOND and tokens - want.reserve or tokens)
  return high, low, high_wait, low_wait, left_high, left_low
end

local function lifetime(record, now)
  local bucket = record.bucket
  if bucket.rate_us <= 0 then
    return IDLE
  end
  return math.min(math.ceil(level_at(bucket, now) / bucket.rate_us) + SLACK, FAR)
end

local function read_want(packed, index)
  local rate_us, burst, high, high_cost, low, low_cost, reserve, floor, back, spent, seed =
    struct.unpack(WANT, packed, 88 * index - 87)
  return rate_us, burst, {
    high = high,
    high_cost = high_cost,
    low = low,
    low_cost = low_cost,
    reserve = reserve,
    floor = floor,
    back = back,
    spent = spent,
    seed = seed,
  }
end

local function step(key, process, dearest, packed, index, now)
  local rate_us, burst, want = read_want(packed, index)
  local record = prepare(read_record(fetch(key)), rate_us, burst, want, dearest, now)
  local answer = struct.pack(GRANT, lease(record, process, want, now))
  save(key, write_record(record), lifetime(record, now))
  return answer
end

local now = clock()
local process, dearest = struct.unpack("<dd", ARGV[1])
local answers = {}
for index, key in ipairs(KEYS) do
  answers[index] = step(key, process, dearest, ARGV[2], index, now)
end
return table.concat(answers)

-- The twin of policies/kernels/gcra.py, function for function: the same operations on the same doubles in the same
-- order. What each is for is said there. A bucket is a table with the fields of `Bucket`; an ask has cost, low, reserve
-- and floor.

local NEVER = -1
local JITTER = 1.25

local function new_bucket(rate_us, burst, now)
  return {
    rate_us = rate_us,
    burst = burst,
    level = rate_us > 0 and 0 or math.huge,
    stamp = now,
    high_at = -SECOND,
    low_until = 0,
    want = 0,
    want_until = 0,
    credit = 0,
    credit_at = 0,
  }
end

local function level_at(bucket, now)
  local elapsed = now - bucket.stamp
  if elapsed <= 0 then
    return bucket.level
  end
  return math.max(0, bucket.level - bucket.rate_us * elapsed)
end

local function due(bucket, floor, now)
  if now >= bucket.low_until then
    return 0
  end
  local credit = bucket.credit + floor * bucket.rate_us * math.max(0, now - bucket.credit_at)
  return math.min(credit, bucket.want)
end

local function kept(bucket, ask, now)
  if not ask.low then
    return due(bucket, ask.floor, now)
  end
  if now >= bucket.high_at + SECOND then
    return 0
  end
  if ask.floor > 0 and due(bucket, ask.floor, now) >= math.min(ask.cost, bucket.burst) then
    return 0
  end
  return ask.reserve
end

local function room(bucket, ask, leave)
  local highest = bucket.burst - leave - ask.cost
  if highest >= 0 then
    return highest
  end
  local ripe = not ask.low and leave > 0 and leave >= math.min(bucket.want, bucket.burst)
  return ripe and highest or 0
end

local function admits(bucket, ask, now)
  return level_at(bucket, now) <= room(bucket, ask, kept(bucket, ask, now))
end

local function demand(bucket, ask, now)
  if not ask.low then
    bucket.high_at = now
  end
end

local function await(bucket, ask, now)
  local pace = ask.floor * bucket.rate_us
  if pace <= 0 then
    return
  end
  bucket.credit = due(bucket, ask.floor, now)
  bucket.credit_at = math.max(bucket.credit_at, now)
  local ends = now + SECOND + math.floor(JITTER * ask.cost / pace)
  if ask.cost >= bucket.want or now >= bucket.want_until then
    bucket.want = ask.cost
    bucket.want_until = ends
    bucket.credit = math.min(bucket.credit, ask.cost)
  end
  bucket.low_until = math.max(bucket.low_until, ends)
end

local function take(bucket, ask, now)
  if ask.low and now < bucket.low_until then
    bucket.credit = math.max(0, due(bucket, ask.floor, now) - ask.cost)
    bucket.credit_at = math.max(bucket.credit_at, now)
  end
  bucket.level = level_at(bucket, now) + ask.cost
  bucket.stamp = math.max(bucket.stamp, now)
end

local function give_back(bucket, ask, now)
  if ask.low and now < bucket.low_until then
    bucket.credit = math.min(bucket.want, due(bucket, ask.floor, now) + ask.cost)
    bucket.credit_at = math.max(bucket.credit_at, now)
  end
  bucket.level = math.max(0, level_at(bucket, now) - ask.cost)
  bucket.stamp = math.max(bucket.stamp, now)
end

local function resize(bucket, rate_us, burst, now)
  local level = level_at(bucket, now)
  if rate_us <= 0 then
    level = math.huge
  elseif bucket.rate_us <= 0 then
    level = burst
  elseif bucket.burst > 0 then
    level = level * (burst / bucket.burst)
  end
  bucket.level = level
  bucket.stamp = math.max(bucket.stamp, now)
  bucket.rate_us = rate_us
  bucket.burst = burst
end

local function reach(bucket, level)
  return bucket.stamp + (bucket.level - level) / bucket.rate_us
end

local function low_turn(bucket, ask)
  local burst, cost = bucket.burst, ask.cost
  local free = reach(bucket, math.max(0, burst - cost))
  local over = reach(bucket, math.max(0, burst - ask.reserve - cost))
  local turn = math.min(over, math.max(bucket.high_at + SECOND, free))
  local pace = ask.floor * bucket.rate_us
  if pace > 0 then
    turn = math.min(turn, math.max(free, bucket.credit_at + (math.min(cost, burst) - bucket.credit) / pace))
  end
  return turn
end

local function high_turn(bucket, ask, now)
  local missing = ask.cost - bucket.burst
  local turns = { reach(bucket, 0) }
  if missing + bucket.want < 0 then
    turns[2] = reach(bucket, -missing - bucket.want)
  end
  local pace = ask.floor * bucket.rate_us
  if pace < bucket.rate_us then
    local both = level_at(bucket, now) + due(bucket, ask.floor, now)
    turns[#turns + 1] = now + (both + missing) / (bucket.rate_us - pace)
  end
  table.sort(turns)
  for _, turn in ipairs(turns) do
    local at = math.max(math.ceil(turn), now + 1)
    if turn < bucket.low_until and (admits(bucket, ask, at) or admits(bucket, ask, at + 1)) then
      return turn
    end
  end
  return math.max(bucket.low_until, reach(bucket, math.max(0, -missing)))
end

local function exact(bucket, ask, now, at)
  local high = math.max(math.ceil(at), now + 1)
  local step, low = 1, now
  while not admits(bucket, ask, high) do
    low = high
    high = high + step
    step = step + step
  end
  step = 1
  while low < high - step and admits(bucket, ask, high - step) do
    high = high - step
    step = step + step
  end
  low = math.max(low, high - step)
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    if middle <= low or middle >= high then
      -- Centuries ahead a double no longer tells microseconds apart, as an integer does: no use in looking closer.
      break
    end
    if admits(bucket, ask, middle) then
      high = middle
    else
      low = middle
    end
  end
  return high
end

local function wait(bucket, ask, now)
  if bucket.rate_us <= 0 then
    return NEVER
  end
  if ask.low and now < bucket.high_at + SECOND then
    return exact(bucket, ask, now, low_turn(bucket, ask)) - now
  end
  if not ask.low and now < bucket.low_until then
    return exact(bucket, ask, now, high_turn(bucket, ask, now)) - now
  end
  local highest = math.max(0, bucket.burst - ask.cost)
  local drained = math.ceil((bucket.level - highest) / bucket.rate_us)
  local at = bucket.stamp + drained
  if
    at > now
    and bucket.level - bucket.rate_us * drained <= highest
    and highest < bucket.level - bucket.rate_us * (drained - 1)
  then
    return at - now
  end
  return exact(bucket, ask, now, at) - now
end

local function refuse(bucket, ask, now)
  if ask.low then
    await(bucket, ask, now)
  end
  return wait(bucket, ask, now)
end

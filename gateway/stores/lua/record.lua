-- What every script shares: the server's clock, and records that have an expiry at all times.
--
-- A record is one string of little-endian doubles, replaced as a whole together with its expiry: there is no moment at
-- which it has none, and what somebody planted under its name, of whatever type, is gone with the next step.

local SECOND = 1000000

-- Microseconds since the epoch: exact in a double, where nanoseconds are not.
local function clock()
  local time = redis.call("TIME")
  return time[1] * SECOND + time[2]
end

-- The string at `key`; nil if there is none, or something else.
local function fetch(key)
  local value = redis.pcall("GET", key)
  if type(value) == "string" then
    return value
  end
  return nil
end

-- `lifetime` is in microseconds.
local function save(key, value, lifetime)
  redis.call("SET", key, value, "PX", string.format("%.0f", math.ceil(lifetime / 1000)))
end

-- Whether a sum of numbers has neither an infinity nor a NaN among them.
local function finite(sum)
  return sum * 0 == 0
end

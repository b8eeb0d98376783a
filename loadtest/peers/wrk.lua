-- Sends GET with each Authorization of a file in turn, from the given line on, or the one request that wrk makes; prints
-- JSON at the end.
local requests, at = {}, 0

function init(args)
  if not args[1] then return end
  for line in io.lines(args[1]) do
    local fields = { Authorization = line }
    for name, value in pairs(wrk.headers) do
      fields[name] = fields[name] or value
    end
    requests[#requests + 1] = wrk.format("GET", nil, fields)
  end
  at = tonumber(args[2])
  request = function()
    at = at % #requests + 1
    return requests[at]
  end
end

function done(summary, latency, _)
  io.write(string.format(
    '{"requests":%d,"seconds":%f,"bytes":%d,"errors":%d,"other":%d,"p50_us":%d,"p99_us":%d}\n',
    summary.requests, summary.duration / 1e6, summary.bytes,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    summary.errors.status, latency:percentile(50), latency:percentile(99)))
end

-- What somebody put under one of our names is dropped where it is of another type, and written anew.

-- Whether the record at `key` is what a command that reads it expects; false if it was not, and is gone.
local function is_ours(key, command, ...)
  local found = redis.pcall(command, key, ...)
  if type(found) == "table" and found.err and string.find(found.err, "WRONGTYPE", 1, true) then
    redis.call("DEL", key)
    return false
  end
  return true
end

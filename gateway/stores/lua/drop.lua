-- Drops a record that is of another type than a command expects, in one step: what is ours by then stays.
--
-- KEYS  the record
-- ARGV  the command, and what follows the name
-- Returns 1 if it was dropped; else 0, and the command has run.

-- include ours

if is_ours(KEYS[1], unpack(ARGV)) then
  return 0
end
return 1

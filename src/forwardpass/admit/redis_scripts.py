"""The policy of ``policy.py`` as Redis runs it: each script is one step, whoever else asks at the same time.

Both are handed, for each key: kind, capacity, refill in a second, amount, and what is known of the taking. The time is
the server's own, the same for all replicas. A bucket and a budget are hashes, what runs is a sorted set of leases.
"""

_STATE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local day = math.floor(now / 86400)

local function asked(place)
  local first = 4 * place - 1
  return ARGV[first], tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
end

local function state(key, kind, rate)
  if kind == 'concurrent' then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
    return redis.call('ZCARD', key), now
  end
  local known = redis.call('HMGET', key, 'used', 'at')
  local used, at = tonumber(known[1]), tonumber(known[2])
  if kind == 'day' then
    if not used or at < day or at > day + 1 then return 0, day end
    return used, at
  end
  if not used then return 0, now end
  if at > now then redis.call('HSET', key, 'at', string.format('%.17g', now)) end
  return math.max(0, used - math.max(0, now - at) * rate), now
end

local function keep(key, kind, capacity, rate, used, at)
  redis.call('HSET', key, 'used', string.format('%.17g', used), 'at', string.format('%.17g', at))
  local seconds = kind == 'day' and 2 * 86400 or math.ceil(used / rate) + 1
  redis.call('EXPIRE', key, seconds)
end
"""

TAKE = (
    _STATE
    + """
local lease, lease_s = ARGV[1], tonumber(ARGV[2])
local granted, used, at = 1, {}, {}
for place, key in ipairs(KEYS) do
  local kind, capacity, rate, amount = asked(place)
  used[place], at[place] = state(key, kind, rate)
  if used[place] + amount > capacity * (1 + 1e-9) then granted = 0 end
end
if granted == 1 then
  for place, key in ipairs(KEYS) do
    local kind, capacity, rate, amount = asked(place)
    used[place] = used[place] + amount
    if kind == 'concurrent' then
      redis.call('ZADD', key, now + lease_s, lease)
      redis.call('EXPIRE', key, math.ceil(lease_s) + 1)
    elseif amount ~= 0 then
      keep(key, kind, capacity, rate, used[place], at[place])
    end
  end
end
local answer = {granted, string.format('%.17g', now)}
for place = 1, #KEYS do answer[place + 2] = string.format('%.17g', used[place]) end
return answer
"""
)
"""ARGV: lease, its seconds, then four for each key. Answers: whether all was taken, the time, what is used of each."""

GIVE = (
    _STATE
    + """
local lease, since = ARGV[1], tonumber(ARGV[2])
for place, key in ipairs(KEYS) do
  local kind, capacity, rate, amount = asked(place)
  if kind == 'concurrent' then
    redis.call('ZREM', key, lease)
  elseif redis.call('EXISTS', key) == 1 or amount < 0 then
    local used, at = state(key, kind, rate)
    if kind == 'rate' and amount > 0 then amount = math.max(0, amount - math.max(0, now - since) * rate) end
    if kind ~= 'day' or at == math.floor(since / 86400) then
      keep(key, kind, capacity, rate, math.max(0, used - amount), at)
    end
  end
end
return 1
"""
)
"""ARGV: lease, when it was taken, then four for each key."""

RENEW = """
local time = redis.call('TIME')
local lease_s = tonumber(ARGV[1])
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
for place, key in ipairs(KEYS) do
  if redis.call('ZADD', key, 'XX', 'CH', now + lease_s, ARGV[place + 1]) == 1 then
    redis.call('EXPIRE', key, math.ceil(lease_s) + 1)
  end
end
return 1
"""
"""ARGV: seconds, then the lease of each key."""

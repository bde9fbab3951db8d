"""The policy of ``policy.py`` as Redis runs it: each script is one step, whoever else asks at the same time.

The time is Redis's own, the same for all servers. An account has two keys: a hash of what is used, when that was so (of
a day's budget: which day) and how much is held, and a sorted set of who holds how much and until when. What ran out of
its lease was held by a server that is gone: of requests that run it is let go, of anything else it counts as used.
"""

_STATE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local day = math.floor(now / 86400)
local lease_s = tonumber(ARGV[1])

local function keep(place, kind, rate, used, at, held)
  local key = KEYS[2 * place - 1]
  local text = '%.17g'
  redis.call('HSET', key, 'used', text:format(used), 'at', text:format(at), 'held', text:format(held))
  local seconds = kind == 'day' and 2 * 86400 or math.ceil(used / rate) + 1
  redis.call('EXPIRE', key, math.max(seconds, math.ceil(lease_s) + 1))
end

local function state(place, kind, rate)
  local leases = KEYS[2 * place]
  if kind == 'concurrent' then
    redis.call('ZREMRANGEBYSCORE', leases, '-inf', now)
    return 0, now, redis.call('ZCARD', leases)
  end
  local known = redis.call('HMGET', KEYS[2 * place - 1], 'used', 'at', 'held')
  local used, at, held = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
  if not used or (kind == 'day' and (at < day or at > day + 1)) then
    redis.call('DEL', leases)
    return 0, kind == 'day' and day or now, 0
  end
  local anew = false
  if kind == 'rate' then
    used, anew, at = math.max(0, used - math.max(0, now - at) * rate), at > now, now
  end
  if held > 0 then
    for _, lease in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now)) do
      local amount = tonumber(lease:match('|(.*)$'))
      used, held, anew = used + amount, held - amount, true
    end
    if anew then redis.call('ZREMRANGEBYSCORE', leases, '-inf', now) end
    if redis.call('EXISTS', leases) == 0 then held = 0 end
  end
  if anew then keep(place, kind, rate, used, at, held) end
  return used, at, held
end
"""

TAKE = (
    _STATE
    + """
local lease = ARGV[2]
local granted, used, at, held = 1, {}, {}, {}
local function asked(place)
  local first = 5 * place - 2
  return ARGV[first], tonumber(ARGV[first + 1]), tonumber(ARGV[first + 2]), ARGV[first + 3], ARGV[first + 4]
end
for place = 1, #KEYS / 2 do
  local kind, capacity, rate, amount = asked(place)
  amount = tonumber(amount)
  used[place], at[place], held[place] = state(place, kind, rate)
  if amount > 0 and used[place] + held[place] + amount > capacity * (1 + 1e-9) then granted = 0 end
end
if granted == 1 then
  for place = 1, #KEYS / 2 do
    local kind, capacity, rate, text, holds = asked(place)
    local amount = tonumber(text)
    if holds == '1' then
      held[place] = held[place] + amount
      redis.call('ZADD', KEYS[2 * place], now + lease_s, lease .. '|' .. text)
      redis.call('EXPIRE', KEYS[2 * place], math.ceil(lease_s) + 1)
    else
      used[place] = used[place] + amount
    end
    if kind ~= 'concurrent' and (amount > 0 or holds == '1') then
      keep(place, kind, rate, used[place], at[place], held[place])
    end
  end
end
local answer = {granted, string.format('%.17g', now)}
for place = 1, #KEYS / 2 do
  answer[2 * place + 1] = string.format('%.17g', used[place])
  answer[2 * place + 2] = string.format('%.17g', held[place])
end
return answer
"""
)
"""ARGV: a lease's seconds, its name, then of each account: kind, capacity, refill in a second, amount, whether it is
held. Answers: whether all was taken, the time, and of each account what is used and what is held."""

SETTLE = (
    _STATE
    + """
for place = 1, #KEYS / 2 do
  local first = 6 * place - 4
  local act, kind, rate, amount = ARGV[first], ARGV[first + 1], tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
  local lease, more = ARGV[first + 4], tonumber(ARGV[first + 5])
  local used, at, held = state(place, kind, rate)
  if act == 'settle' then
    if redis.call('ZREM', KEYS[2 * place], lease) == 1 and kind ~= 'concurrent' then
      held = redis.call('EXISTS', KEYS[2 * place]) == 1 and math.max(0, held - amount) or 0
      keep(place, kind, rate, used + more, at, held)
    end
  elseif act == 'refund' then
    local back = math.max(0, amount - math.max(0, now - more) * rate)
    if used > 0 then keep(place, kind, rate, math.max(0, used - back), at, held) end
  elseif at == more then
    keep(place, kind, rate, used + amount, at, held)
  end
end
return 1
"""
)
"""ARGV: a lease's seconds, then of each account: what is to be done, kind, refill in a second, amount, and

- ``settle``: who held the amount, and what of it was used; to say it again changes nothing
- ``refund``: nobody, and when the amount was taken, which was not held
- ``book``: nobody, and the day for which the amount was used elsewhere
"""

RENEW = """
local time = redis.call('TIME')
local lease_s = tonumber(ARGV[1])
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local seconds = math.ceil(lease_s) + 1
for place = 1, #KEYS / 2 do
  if redis.call('ZADD', KEYS[2 * place], 'XX', 'CH', now + lease_s, ARGV[place + 1]) == 1 then
    redis.call('EXPIRE', KEYS[2 * place], seconds)
    if redis.call('TTL', KEYS[2 * place - 1]) < seconds then redis.call('EXPIRE', KEYS[2 * place - 1], seconds) end
  end
end
return 1
"""
"""ARGV: seconds, then who holds of each account."""

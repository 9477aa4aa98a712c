-- One request of a process. It checks what the process knows, carries out what the process
-- asks for, and answers with all changes that the process has not seen. Redis runs scripts
-- one after another, and replicates and saves the effects of each as a whole.
--
-- KEYS: meta, sessions, tickets, log, pauses
-- ARGV: mode (begin, keep or end a session, or try rights), session, its time to live in microseconds,
--       version and tag of the last change that the process has seen, the request's own
--       tag, the greatest number that the process knows, the channel, and then operations, each a
--       letter and an argument. To begin, a process sends
--       the seconds since its last answer, and the history of its last session, in place of a change
-- Answer: the status, and then entries of the log, each as version and text. A session that
-- begins gets one with all tickets and pauses, and the history.
local meta, sessions, tickets, log, pauses = unpack(KEYS)
local mode, session, ttl, seen, seen_tag, tag, known, channel = unpack(ARGV, 1, 8)

-- Everything that is called below is tried before anything is changed, so that a right that
-- the user lacks shows here.
if mode == 'try' then
	local none = log .. ':none'
	for _, call in ipairs({
		{'DEL', none}, {'HSET', none, 'a', ''}, {'HGET', none, 'a'}, {'HMGET', none, 'a'}, {'HEXISTS', none, 'a'}, {'HLEN', none},
		{'HGETALL', none}, {'HDEL', none, 'a'}, {'ZADD', none, 0, 'a'}, {'ZSCORE', none, 'a'}, {'ZCARD', none},
		{'ZRANGE', none, 0, 0}, {'ZRANGEBYSCORE', none, 0, 0}, {'ZREM', none, 'a'}, {'XADD', none, '1-0', 'a', ''},
		{'XRANGE', none, '-', '-'}, {'XLEN', none}, {'DEL', none}, {'PUBLISH', channel, ''}, {'TIME'}, {'INFO', 'server', 'replication'},
	}) do
		local answer = redis.pcall(unpack(call))
		if type(answer) == 'table' and answer.err then return redis.error_reply(answer.err .. ' (' .. call[1] .. ')') end
	end
	return {'ok'}
end

local function text(number) return string.format('%.0f', number) end

local appends = false
for i = 9, #ARGV, 2 do appends = appends or ARGV[i] == 'a' end
-- A server without free memory allows a script to write if its first write needs none. So
-- turns end, and only arrivals are refused.
if not appends then redis.call('HDEL', meta, 'none') end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local info = redis.call('INFO', 'server', 'replication')
local function infoValue(name)
	local _, colon = string.find(info, name .. ':', 1, true) -- a pattern would be tried at each place of a long text
	return string.match(info, '^%w+', colon + 1)
end
local run = infoValue('run_id')
local numbers = {'version', 'number', 'clock', 'time', 'longest', 'used', 'since', 'closed', 'tickets', 'sessions', 'pauses'}
local values = redis.call('HMGET', meta, 'run', 'tag', 'history', unpack(numbers))
local m = {run = values[1] or '', tag = values[2] or '', history = values[3] or tag}
for i, name in ipairs(numbers) do m[name] = tonumber(values[i + 3] or 0) end
local before = m.tag

-- Only a session that begins makes keys. Another one was at another server, or they were deleted.
if mode ~= 'begin' and m.run == '' then return {mode == 'keep' and 'history' or 'ok'} end

-- Another history, on another server, which ran already when the process had its last answer: others
-- may be inside at that server. One that was started since may be the same, which has lost its data.
local history, server = string.match(mode == 'begin' and seen_tag or '', '^(%S+) (%S+)$')
if history and history ~= m.history and server ~= run and infoValue('uptime_in_seconds') - 1 >= tonumber(seen) then
	return {'elsewhere', m.run == '' and 'no keys of Orderly' or 'keys of others', infoValue('uptime_in_seconds')}
end
server = run

-- A server that was a replica meanwhile has the same run ID, but its second replication ID is
-- the first one of the server that it followed. It becomes zero again when there was no replica
-- for `repl-backlog-ttl`, so that means nothing.
local followed = infoValue('master_replid2')
run = run .. (string.match(followed, '^0+$') and string.sub(m.run, #run + 1) or followed)

local changes = {}
local function change(...) changes[#changes + 1] = table.concat({...}, ' ') end
local function remove(ticket)
	local n = redis.call('HDEL', tickets, ticket)
	m.tickets = m.tickets - n
	if n > 0 then change('r', ticket) end
end
local function finish(id)
	m.sessions = m.sessions - redis.call('ZREM', sessions, id)
	change('x', id)
	local all = redis.call('HGETALL', tickets)
	for i = 1, #all, 2 do
		if string.sub(all[i + 1], 1, #id + 1) == id .. ' ' then remove(all[i]) end
	end
end

-- The clock of sessions. If the server stood still, or somebody has set its clock, this one
-- moves by no more than the margin of a lease. If that clock is set back, it moves back, so
-- that it gains no more when it is set to and fro.
m.clock = m.clock + math.max(math.min(now - m.time, 500000), -500000)
m.time = now
-- The longest time to live counts until it has passed since somebody has asked with it.
if tonumber(ttl) >= m.longest or m.clock > m.used + m.longest then m.longest, m.used = tonumber(ttl), m.clock end
m.number = math.max(m.number, tonumber(known))

-- Keys are new, or were deleted. Then all is lost: no process has seen an entry of this log.
if m.run == '' or redis.call('HLEN', tickets) ~= m.tickets or redis.call('ZCARD', sessions) ~= m.sessions
	or redis.call('HLEN', pauses) ~= m.pauses then
	redis.call('DEL', sessions, tickets, log)
	m.run, m.tickets, m.sessions, m.pauses = '', 0, 0, redis.call('HLEN', pauses)
end

-- The last changes may be missing, or all. Whoever knows of them has a session that ends within
-- the longest time to live. Until then, nobody gets a ticket. Renewals may be missing, too.
local function close()
	m.run, m.since, m.used, m.closed = run, m.clock, m.clock, m.clock + m.longest
	for _, id in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do redis.call('ZADD', sessions, text(m.closed), id) end
	change('s', run)
end

-- Another server: it was restarted, or a replica has taken over.
if run ~= m.run then
	close()
elseif m.closed > m.clock then
	m.closed = math.max(m.closed, m.since + m.longest)
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', text(m.clock))) do finish(id) end

-- Does the log contain what the process has seen last? If not, it may have been cut: it is full,
-- and was written by this server, without an interruption.
local kept = 10000
local status, unseen, done = 'ok', {}, false
if mode == 'keep' then
	unseen = redis.call('XRANGE', log, seen .. '-0', '+', 'COUNT', 1001)
	local first = table.remove(unseen, 1)
	if not first or first[1] ~= seen .. '-0' or string.match(first[2][2], '^%S*') ~= seen_tag then
		local here = string.sub(seen_tag, -#run) == run
		status, unseen = here and first and redis.call('XLEN', log) >= kept and 'missed' or 'history', {}
		-- This server has an older state than it had, such as by a snapshot of its machine. The entry
		-- follows none that anybody knows, so all processes come to ask.
		if status == 'history' and here and m.closed <= m.clock then
			close()
			m.version, before = math.max(m.version, tonumber(seen)), ''
		end
	elseif not redis.call('ZSCORE', sessions, session) then
		status = 'ended'
	elseif #unseen == 1000 then
		status = 'again'
	end
end
if status == 'ok' and appends and m.closed > m.clock then status = 'closed' end

local answer = {status}
for _, entry in ipairs(unseen) do
	answer[#answer + 1] = string.match(entry[1], '^%d+')
	answer[#answer + 1] = entry[2][2]
	done = done or string.sub(entry[2][2], 1, #tag + 1) == tag .. '.' -- the answer was lost
end

local operations = {r = remove}
function operations.a(ticket)
	-- By the server's clock, so that no number comes again, whatever the server has forgotten.
	m.number, m.tickets = math.max(m.number + 1, now), m.tickets + 1
	local number, value = text(m.number), session .. ' w ' .. ticket
	redis.call('HSET', tickets, number, value)
	change('a', number, value)
end
function operations.i(ticket)
	local value = redis.call('HGET', tickets, ticket)
	if not value then return end
	redis.call('HSET', tickets, ticket, (string.gsub(value, ' w ', ' i ', 1)))
	change('i', ticket)
end
function operations.e(ticket)
	if redis.call('HEXISTS', tickets, ticket) == 1 then change('e', ticket) end
end
function operations.p(pause)
	local name, till = string.match(pause, '^(%S*) (%d+)$')
	if till == '0' then
		m.pauses = m.pauses - redis.call('HDEL', pauses, name)
	else
		m.pauses = m.pauses + redis.call('HSET', pauses, name, till)
	end
	change('p', name, till)
end

if mode == 'end' then finish(session) end
if mode == 'begin' then change('b', session) end
if mode == 'begin' or mode == 'keep' and (status == 'ok' or status == 'closed' or status == 'again') then
	m.sessions = m.sessions + redis.call('ZADD', sessions, text(math.max(m.clock + ttl, m.closed)), session)
end
-- A repetition may take out, or mark as inside, other tickets than before. Both can be repeated.
if status == 'ok' or status == 'closed' then
	for i = 9, #ARGV, 2 do
		local letter = ARGV[i]
		if letter == 'r' or letter == 'i' or not done and (letter ~= 'a' or status == 'ok') then operations[letter](ARGV[i + 1]) end
	end
end

if #changes > 0 then
	-- A tag stands for the same changes in all histories.
	m.version = m.version + 1
	local version = text(m.version)
	m.tag = tag .. (status == 'ok' and not done and '.' or '-' .. version .. '.') .. run
	local body = m.tag .. ' ' .. before .. '\n' .. table.concat(changes, '\n')
	redis.call('XADD', log, 'MAXLEN', '~', kept, version .. '-0', 'c', body)
	redis.call('PUBLISH', channel, version .. '\n' .. body)
	if status == 'ok' or status == 'closed' or status == 'ended' then
		if mode == 'begin' then
			local all = redis.call('HGETALL', pauses)
			for i = 1, #all, 2 do change('p', all[i], all[i + 1]) end
			all = redis.call('HGETALL', tickets)
			for i = 1, #all, 2 do change('a', all[i], all[i + 1]) end
			body = m.tag .. ' ' .. before .. '\n' .. table.concat(changes, '\n')
		end
		answer[#answer + 1] = version
		answer[#answer + 1] = body
		if mode == 'begin' then answer[#answer + 1] = m.history .. ' ' .. server end
	end
end
redis.call('HSET', meta, 'history', m.history, 'run', m.run, 'version', text(m.version), 'tag', m.tag, 'number', text(m.number), 'clock', text(m.clock), 'time', text(m.time),
	'longest', text(m.longest), 'used', text(m.used), 'since', text(m.since), 'closed', text(m.closed), 'tickets', text(m.tickets), 'sessions', text(m.sessions),
	'pauses', text(m.pauses))
return answer

-- The statements of the store. A line that begins with "-- :" names what follows.
-- With parameters, it can be prepared. "durable", "history", "identity", "place" and "timeline" stand
-- for the statements of these names.

-- : durable
-- True. The transaction waits for the server's disk, even if it would not by default.
CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) ELSE '' END IS NOT NULL

-- : timeline
-- A promoted standby has another timeline, and so has a server restored to a moment.
left(pg_walfile_name(pg_current_wal_flush_lsn()), 8)

-- : history
-- Which server this is, and which timeline.
((SELECT system_identifier FROM pg_control_system()) || '/' || :timeline)

-- : identity
-- Of the history of a namespace: the row's random text, which a standby and a backup have, too, and the
-- server, which a copy of the tables elsewhere has not.
(channel || '/' || (SELECT system_identifier FROM pg_control_system()))

-- : place
-- Where the tables are, or would be made, for people.
format('schema %I of database %I', coalesce((SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('orderly_namespaces')),
    current_schema(), '(none)'), current_database())

-- : where
SELECT :place, to_regclass('orderly_namespaces') IS NOT NULL

-- : settle
-- Whether the process $1 of the server is this one: the connection is not through a pooler. Then
-- the server ends it when it has been idle for $2 ms, unless it ends idle ones earlier, or is older
-- than 14. To prepare statements locks tables, too, which may take $3 ms.
SELECT CASE WHEN pg_backend_pid() = $1::bigint THEN
    (SELECT count(set_config(name, CASE name WHEN 'lock_timeout' THEN $3 ELSE $2 END::text, false)) > 0 FROM pg_settings
    WHERE name = 'lock_timeout' OR name = 'idle_session_timeout' AND setting = '0')
ELSE false END

-- : begin
-- Each statement sees what was committed before it, whatever the default.
BEGIN ISOLATION LEVEL READ COMMITTED

-- : begin reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- : add namespace
-- A process that knows an identity, $3, makes no other history.
INSERT INTO orderly_namespaces (name, history, longest)
SELECT $1, :history, $2::bigint WHERE $3 = '' OR EXISTS (SELECT FROM orderly_namespaces WHERE name = $1 AND $3 = :identity)
ON CONFLICT (name) DO UPDATE SET longest = excluded.longest WHERE orderly_namespaces.longest < excluded.longest

-- : lock ($1)
-- Locks the row of a namespace and takes a number. It is at least the time, so numbers grow even
-- if the row is deleted.
UPDATE orderly_namespaces
SET last = greatest(last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + 1
WHERE name = $1 AND :durable

-- : begin epoch
-- If commits may be missing, one row takes the place of all sessions. Nobody renews it, and none
-- begins until it has ended, after the longest lease. An answer may have shown that commits are
-- missing, in an epoch before $2, or the process knows the number $4. Numbers of lost tickets are not
-- used again. Nor is a counter, for who saw an earlier loss. A history with another identity than $3
-- is left alone.
WITH n AS (
    UPDATE orderly_namespaces SET last = greatest(last, $4) + 1000000000, epoch = greatest(epoch + 1, $2), history = :history
    WHERE name = $1 AND $3 IN ('', :identity) AND (history <> :history OR epoch < $2 OR last < $4)
    RETURNING id, longest, last),
lost AS (DELETE FROM orderly_sessions s USING n WHERE s.namespace = n.id AND s.id > 0)
INSERT INTO orderly_sessions (id, namespace, owner, ttl, renewals) SELECT -id, id, 'lost', longest, last FROM n
ON CONFLICT (id) DO UPDATE SET renewals = excluded.renewals, ttl = excluded.ttl

-- : end sessions ($1, $2)
-- Those whose counters have not moved since somebody began to watch them.
DELETE FROM orderly_sessions s USING unnest($1::bigint[], $2::bigint[]) AS stale (id, renewals)
WHERE s.id = stale.id AND s.renewals = stale.renewals

-- : end tickets ($1)
-- Of ended sessions, also of one that an operator has deleted.
UPDATE orderly_tickets t SET gone = true, version = n.last FROM orderly_namespaces n
WHERE n.name = $1 AND t.namespace = n.id AND NOT t.gone
    AND NOT EXISTS (SELECT FROM orderly_sessions s WHERE s.id = t.session)

-- : begin session
INSERT INTO orderly_sessions (id, namespace, owner, ttl)
SELECT last, id, $2, $3 FROM orderly_namespaces n
WHERE name = $1 AND $4 IN ('', :identity) AND NOT EXISTS (SELECT FROM orderly_sessions s WHERE s.id = -n.id)

-- : opening
-- What a session needs to know. Its ID is 0 if it has not begun. It fails if the table of pauses is missing.
SELECT :timeline, channel, coalesce(s.id, 0), n.id, n.epoch, :identity, :place
FROM orderly_namespaces n LEFT JOIN orderly_sessions s ON s.namespace = n.id AND s.id = n.last
WHERE n.name = $1 AND NOT EXISTS (SELECT FROM orderly_pauses WHERE false)

-- : renew
UPDATE orderly_sessions SET renewals = renewals + 1 WHERE id = $1 AND :durable RETURNING id

-- : end session
DELETE FROM orderly_sessions WHERE id = $1

-- : insert ($1, $2, $3, $4, $5)
-- Inserts the tickets from serial number $3 on, unless it was done before.
WITH mine AS (
    UPDATE orderly_sessions SET serial = $3::bigint + $4 - 1
    WHERE id = $2 AND namespace = $1 AND serial < $3 RETURNING id),
n AS (UPDATE orderly_namespaces SET last = last + $4 FROM mine WHERE orderly_namespaces.id = $1 RETURNING last, mine.id AS session)
INSERT INTO orderly_tickets (namespace, number, version, session, serial, record)
SELECT $1, last - $4 + t.i, last, n.session, $3::bigint + t.i - 1, t.record
FROM n, unnest($5::json[]) WITH ORDINALITY AS t (record, i)

-- : take out ($1, $2)
UPDATE orderly_tickets t SET gone = true, version = n.last FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = ANY($2::bigint[]) AND NOT t.gone

-- : trim ($1, $2)
WITH n AS (UPDATE orderly_namespaces SET trimmed = $2 WHERE id = $1 AND trimmed < $2),
over AS (DELETE FROM orderly_pauses WHERE namespace = $1 AND version <= $2 AND until IS NULL)
DELETE FROM orderly_tickets WHERE namespace = $1 AND version <= $2 AND gone

-- : mark inside ($1, $2)
UPDATE orderly_tickets t SET version = n.last, inside = true, evict = false FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = ANY($2::bigint[]) AND NOT t.gone

-- : ask ($1, $2)
UPDATE orderly_tickets t SET version = n.last, evict = true FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = $2 AND NOT t.gone

-- : pause ($1, $2, $3)
INSERT INTO orderly_pauses (namespace, name, version, until) SELECT id, $2::bytea, last, $3::timestamptz FROM orderly_namespaces WHERE id = $1
ON CONFLICT (namespace, name) DO UPDATE SET version = excluded.version, until = excluded.until

-- : resume ($1, $2)
UPDATE orderly_pauses p SET until = NULL, version = n.last FROM orderly_namespaces n
WHERE n.id = $1 AND p.namespace = n.id AND p.name = $2::bytea AND p.until IS NOT NULL

-- : read state ($1, $2)
SELECT n.last, n.trimmed, :timeline, pg_current_wal_flush_lsn() - '0/0', s.id IS NOT NULL
FROM orderly_namespaces n LEFT JOIN orderly_sessions s ON s.id = $2 WHERE n.id = $1

-- : read leases ($1, $2)
-- Of all sessions but $2.
SELECT s.id, s.renewals, s.ttl FROM orderly_sessions s JOIN orderly_namespaces n ON n.id = s.namespace
WHERE n.name = $1 AND s.id <> $2

-- : read counts ($1)
-- Whether an operator has deleted the session of a ticket, and the number of tickets.
SELECT count(*) > count(s.id), count(*)
FROM orderly_tickets t LEFT JOIN orderly_sessions s ON s.id = t.session WHERE t.namespace = $1 AND NOT gone

-- : read tickets ($1, $2)
-- The sum keeps the server from reading all tickets in the order of the primary key.
SELECT number, session, serial, record::text, inside::int + 2 * evict::int, gone FROM orderly_tickets
WHERE namespace = $1 AND version > $2 AND NOT (gone AND $2::bigint < 0) ORDER BY number + 0

-- : read pauses ($1, $2)
-- A pause that is over ends at the start of year 1, which is no time in Go.
SELECT encode(name, 'hex'), (extract(epoch FROM coalesce(until, '0001-01-01 00:00Z')) * 1000000)::bigint FROM orderly_pauses WHERE namespace = $1 AND version > $2

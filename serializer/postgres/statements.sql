-- The statements of the store. A line that begins with "-- :" names what follows.
-- "history" and "timeline" stand for the statements of these names.

-- : timeline
-- A promoted standby has another timeline, and so has a server restored to a moment.
left(pg_walfile_name(pg_current_wal_flush_lsn()), 8)

-- : history
-- Which server this is, and which timeline.
((SELECT system_identifier FROM pg_control_system()) || '/' || :timeline)

-- : add namespace
INSERT INTO orderly_namespaces (name, history) VALUES ($1, :history) ON CONFLICT (name) DO NOTHING

-- : lock
-- Locks the row of a namespace and takes $2 numbers. They are at least the time, so they
-- grow even if commits are lost.
UPDATE orderly_namespaces
SET last = greatest(last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + $2::bigint
WHERE name = $1

-- : begin epoch
-- If commits may be missing: all sessions end, and none begins for the longest lease. An
-- answer may have shown that, in an epoch before $3, or the row is not the one with the channel $4.
UPDATE orderly_namespaces n
SET epoch = epoch + 1, history = :history, opens = clock_timestamp() +
    greatest($2::bigint * interval '1 microsecond', (SELECT max(ttl) FROM orderly_sessions s WHERE s.namespace = n.id))
WHERE name = $1 AND (history <> :history OR epoch < $3 OR channel <> coalesce(nullif($4, ''), channel))

-- : end sessions
DELETE FROM orderly_sessions s USING orderly_namespaces n
WHERE n.name = $1 AND s.namespace = n.id AND (s.ends <= clock_timestamp() OR s.epoch < n.epoch)

-- : end tickets
-- Of ended sessions, also of one that an operator has deleted.
UPDATE orderly_tickets t SET gone = true, version = n.last FROM orderly_namespaces n
WHERE n.name = $1 AND t.namespace = n.id AND NOT t.gone
    AND NOT EXISTS (SELECT FROM orderly_sessions s WHERE s.id = t.session)

-- : end pauses
UPDATE orderly_pauses p SET until = NULL, ends = NULL, version = n.last FROM orderly_namespaces n
WHERE n.name = $1 AND p.namespace = n.id AND p.ends <= clock_timestamp()

-- : begin session
INSERT INTO orderly_sessions (id, namespace, epoch, owner, ttl, ends)
SELECT last, id, epoch, $2, $3::bigint * interval '1 microsecond', clock_timestamp() + $3::bigint * interval '1 microsecond'
FROM orderly_namespaces WHERE name = $1 AND opens <= clock_timestamp()

-- : opening
-- The microseconds until sessions may begin, and what a session needs to know. Its ID is 0 if
-- it has not begun.
SELECT (extract(epoch FROM greatest(opens, clock_timestamp()) - clock_timestamp()) * 1000000)::bigint,
    :timeline, channel, coalesce(s.id, 0), n.id, n.epoch
FROM orderly_namespaces n LEFT JOIN orderly_sessions s ON s.namespace = n.id AND s.id = n.last WHERE n.name = $1

-- : renew
UPDATE orderly_sessions SET ends = clock_timestamp() + ttl WHERE id = $1 AND ends > clock_timestamp() RETURNING id

-- : end session
UPDATE orderly_sessions SET ends = clock_timestamp() WHERE id = $1

-- : insert
-- Inserts the tickets from serial number $3 on, unless it was done before.
WITH mine AS (
    UPDATE orderly_sessions SET serial = $3::bigint + $4 - 1
    WHERE id = $2 AND namespace = $1 AND serial < $3 AND ends > clock_timestamp() RETURNING id)
INSERT INTO orderly_tickets (namespace, number, version, session, serial, record)
SELECT n.id, n.last - $4 + t.i, n.last, mine.id, $3::bigint + t.i - 1, t.record
FROM mine, orderly_namespaces n, unnest($5::json[]) WITH ORDINALITY AS t (record, i)
WHERE n.id = $1

-- : take out
UPDATE orderly_tickets t SET gone = true, version = n.last FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = ANY($2::bigint[]) AND NOT t.gone

-- : leave
-- Lock, take out and notify at once, which is faster. A concurrent change makes the server
-- look at the rows again.
WITH n AS (
    UPDATE orderly_namespaces
    SET last = greatest(last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + 1
    WHERE name = $1 RETURNING id, last),
out AS (
    UPDATE orderly_tickets t SET gone = true, version = n.last FROM n
    WHERE t.namespace = n.id AND t.number = ANY($2::bigint[]) AND NOT t.gone)
SELECT pg_notify($3, $4) FROM n

-- : trim
WITH n AS (UPDATE orderly_namespaces SET trimmed = $2 WHERE id = $1 AND trimmed < $2)
DELETE FROM orderly_tickets WHERE namespace = $1 AND version <= $2 AND gone

-- : set inside
UPDATE orderly_tickets t SET version = n.last, inside = $3 FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = $2 AND NOT t.gone

-- : set evict
UPDATE orderly_tickets t SET version = n.last, evict = $3 FROM orderly_namespaces n
WHERE n.id = $1 AND t.namespace = n.id AND t.number = $2 AND NOT t.gone

-- : pause
INSERT INTO orderly_pauses (namespace, name, version, until, ends)
SELECT id, $2::bytea, last, $3::timestamptz, clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM orderly_namespaces WHERE id = $1
ON CONFLICT (namespace, name) DO UPDATE SET version = excluded.version, until = excluded.until, ends = excluded.ends

-- : resume
UPDATE orderly_pauses p SET until = NULL, ends = NULL, version = n.last FROM orderly_namespaces n
WHERE n.id = $1 AND p.namespace = n.id AND p.name = $2::bytea AND p.until IS NOT NULL

-- : read state
SELECT n.last, n.trimmed, :timeline, pg_current_wal_flush_lsn() - '0/0', coalesce(s.ends > clock_timestamp(), false)
FROM orderly_namespaces n LEFT JOIN orderly_sessions s ON s.id = $2 WHERE n.id = $1

-- : read ends
-- The microseconds until the next lease or pause ends, and the number of tickets if $3.
SELECT (extract(epoch FROM least(
        (SELECT min(ends) FROM orderly_sessions WHERE namespace = $1 AND id <> $2),
        (SELECT min(ends) FROM orderly_pauses WHERE namespace = $1)) - clock_timestamp()) * 1000000)::bigint,
    CASE WHEN $3 THEN (SELECT count(*) FROM orderly_tickets t WHERE t.namespace = $1 AND NOT gone) END

-- : read tickets
SELECT number, session, serial, record::text, inside::int + 2 * evict::int, gone FROM orderly_tickets
WHERE namespace = $1 AND version > $2 AND NOT (gone AND $2::bigint < 0) ORDER BY number

-- : read pauses
SELECT name, (extract(epoch FROM until) * 1000000)::bigint FROM orderly_pauses WHERE namespace = $1 AND version > $2

// Package uniqueid makes and parses six kinds of IDs, for requests, rows, log lines and traces.
// A generator serves any number of goroutines, and makes no ID twice. One of a kind is enough for a process.
//
//	id := uniqueid.NewTXID()                // cbpvimguo4hkaps9lf6g
//	key := uniqueid.NewUUIDv7()             // 018bcfe5-687b-7048-b456-789abcd54321
//	id, err := uniqueid.ParseTXID(text)     // err says what is wrong, and where
//	readings, err := uniqueid.Decode(text)  // whatever kind it is
//
// # Which kind
//
//   - [TXID], from [NewTXID], if nothing speaks for another: it sorts by time, as bytes and as text.
//   - [UUIDv7], from [NewUUIDv7], for keys of databases. It is a TXID in another notation.
//   - [TraceID] and [TraceContext], from [NewTraceContext], for W3C Trace Context.
//   - [CallNumber], from a [CallNumberGenerator], for what people type or read aloud.
//   - [UniqueID], from a [UniqueIDGenerator], for programs that expect Apache's UNIQUE_ID.
//   - [ShardedID], from a [ShardedIDGenerator], for keys that name their shard.
//
// TXIDs and UUIDs of different processes differ by their random bits. A UniqueIDGenerator needs a
// [Node] that no other process has. CallNumberGenerators share a [RunStore], such as a [FileRunStore].
//
// # Text, JSON and databases
//
// IDs are written as text, also in JSON, by log/slog and in columns of database/sql. A TXID, a
// UniqueID, a UUIDv7 and a TraceID have bytes, too. What reads them refuses what no generator can make, with a [*ParseError]. [Must] is for IDs
// in the source code.
//
// The zero UUIDv7, TraceID or TraceContext means none. It is always written as nothing, and read from
// it: an empty text, no bytes, or NULL. The zero TXID, UniqueID, ShardedID or CallNumber is an ID like
// any other, and is written as such. For these, use [database/sql.Null] if a column may be NULL.
//
// A text sorts by time only if it is compared by bytes. PostgreSQL compares by the rules of a language:
// ch comes after h in Czech, and aa after z in Danish. So store a UUIDv7 as uuid, and a TXID as
// text COLLATE "C", or id[:] as bytea, also in WHERE. In Go, sort with Compare.
//
// # Formats
//
// A TXID is the transaction ID of the nginx module ngx_txid ("ngx_txid: overview").
//
//	+--------------------+--------------------------------------+
//	| milliseconds   42  |               random 54              |  96 bits
//	+--------------------+--------------------------------------+
//	cbpvimguo4hkaps9lf6g    20 characters of 0-9a-v (base32hex, RFC 4648)
//
// A UUIDv7 is a UUID of version 7 (RFC 9562). A TraceContext is the header field traceparent of W3C
// Trace Context. Its trace ID can be the bits of a UUIDv7, so one ID identifies a log line, a row and a trace.
//
//	+--------------------+------+-----------+------+-----------+--------+
//	| milliseconds   48  |ver 4 | random 12 |var 2 | random 42 | more 20|  128 bits
//	+--------------------+------+-----------+------+-----------+--------+
//	018bcfe5-687b-7048-b456-789abcd54321                        36 characters
//	00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03     55 characters
//
// A UniqueID is the UNIQUE_ID of Apache's mod_unique_id ("Apache module mod_unique_id"; the later
// layouts are those of its source).
//
//	+------------+------------+------------+---------+
//	| seconds 32 |  IPv4   32 |   pid   32 | count 16|              112 bits, classic
//	+------------+------------+------------+---------+------------+
//	| seconds 32 |  IPv4   32 |   pid   32 | count 16| thread  32 | 144 bits, threaded
//	+------------+------------+------------+---------+------------+
//	| seconds 32 |         root 80         | count 16| thread  32 | 160 bits, modern
//	+------------+-------------------------+---------+------------+
//	PFobLMCoAQoAADA5AQI            19 characters of A-Za-z0-9@- (base64)
//	O5rKAMCoAQoAADA5@@-7777-       24 characters of the same
//	ZVPxAAARIjNEVWZ3iJmrzQAAAAc    27 characters of A-Za-z0-9-_ (base64url)
//
// A ShardedID is that of "UUID generation with shard numbers in PHP".
//
//	+-------------+---------+----------------+-------------------+
//	| shard, dec. | random 4| seconds, hex 8 | microseconds, hex 5|
//	+-------------+---------+----------------+-------------------+
//	39f3c4aa5c7f2c2d33    18 to 23 characters of 0-9a-f
//
// A CallNumber is that of "Distributed ID Generation and Bit Packing", of the mailing list archive Chibrary.
//
//	+-----------+------------------------------+-----------------+
//	| version 3 |            run 30            |   sequence 14   |  47 bits, shuffled
//	+-----------+------------------------------+-----------------+
//	03KOE60u    8 characters of 0-9A-Za-z (base62)
package uniqueid

// Package uniqueid makes and parses six kinds of IDs. Five need no coordination between
// processes; a call_number needs a little.
//
// # txid
//
// [TXID] is the transaction ID of the nginx module ngx_txid ("ngx_txid:
// overview"): it sorts by time, as bytes and as text.
//
//	+--------------------+--------------------------------------+
//	| milliseconds   42  |               random 54              |  96 bits
//	+--------------------+--------------------------------------+
//	cbpvimguo4hkaps9lf6g    20 characters of 0-9a-v (base32hex, RFC 4648)
//
// # uuid_v7 and traceparent
//
// [UUIDv7] is a UUID of version 7 (RFC 9562), and a txid in another notation. [TraceContext]
// is the header field traceparent of W3C Trace Context; its [TraceID] can be the bits of a
// UUIDv7. So one ID identifies a log line, a row and a trace.
//
//	+--------------------+------+-----------+------+-----------+--------+
//	| milliseconds   48  |ver 4 | random 12 |var 2 | random 42 | more 20|  128 bits
//	+--------------------+------+-----------+------+-----------+--------+
//	018bcfe5-687b-7048-b456-789abcd54321                        36 characters
//	00-018bcfe5687b7048b456789abcd54321-00f067aa0ba902b7-03     55 characters
//
// # unique_id
//
// [UniqueID] is the UNIQUE_ID of Apache's mod_unique_id ("Apache module
// mod_unique_id"; the later layouts are those of its source).
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
// # sharded_id
//
// [ShardedID] carries the number of the shard that its object belongs to
// ("UUID generation with shard numbers in PHP").
//
//	+-------------+---------+----------------+-------------------+
//	| shard, dec. | random 4| seconds, hex 8 | microseconds, hex 5|
//	+-------------+---------+----------------+-------------------+
//	39f3c4aa5c7f2c2d33    18 to 23 characters of 0-9a-f
//
// # call_number
//
// [CallNumber] is short enough to be read over the telephone ("Distributed ID
// Generation and Bit Packing", of the mailing list archive Chibrary). Run
// numbers come from a [RunStore] that all processes share.
//
//	+-----------+------------------------------+-----------------+
//	| version 3 |            run 30            |   sequence 14   |  47 bits, shuffled
//	+-----------+------------------------------+-----------------+
//	03KOE60u    8 characters of 0-9A-Za-z (base62)
//
// # Making and reading
//
// New makes an ID, and AppendText appends its text to a buffer. A constructor takes
// options: a clock and a source of randomness. A Parse function refuses what no generator
// can make. [Decode] returns which kinds a text can be.
//
// To add a kind, write a file with its type, its form and its generator, and add it to the
// tables in decode.go and in modules/uniqueids/kinds.go.
package uniqueid

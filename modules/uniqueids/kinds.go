package uniqueids

import "github.com/orderly-http/caddy-orderly/uniqueid"

// A kind is one kind of IDs, as requests and the command ids know it. How its texts are
// read is in the table of uniqueid.Decode.
type kind struct {
	scheme, placeholder string
	ofTrace             bool // Caddy's tracing determines them, if it is on; the command makes none
	// open sets up what makes the IDs for a handler.
	open func(*Handler) (newID, error)
}

// newID makes an ID for a request, and returns its text.
type newID func(*requestIDs) (string, error)

// kinds are all kinds of IDs, that of the command's default first.
var kinds = []kind{
	{"txid", "http.request.txid", false, notation((*requestIDs).TXID)},
	{"unique_id", "unique_id", false, openUniqueIDs},
	{"sharded_id", "http.request.sharded_id", false, openShardedIDs},
	{"call_number", "http.request.call_number", false, openCallNumbers},
	{"uuid_v7", "http.request.uuid_v7", false, notation(func(ids *requestIDs) string { return ids.UUIDv7().String() })},
	{"trace_id", "http.request.trace_id", true, notation(func(ids *requestIDs) string { return ids.Trace().TraceID().String() })},
	{"traceparent", "http.request.traceparent", true, notation(func(ids *requestIDs) string { return ids.Trace().String() })},
}

// notation is the txid of a request in one of its notations.
func notation(of func(*requestIDs) string) func(*Handler) (newID, error) {
	return func(*Handler) (newID, error) {
		return func(ids *requestIDs) (string, error) { return of(ids), nil }, nil
	}
}

func openShardedIDs(u *Handler) (newID, error) {
	g, err := uniqueid.NewShardedIDGenerator(u.Shards)
	return func(*requestIDs) (string, error) { return g.New().String(), nil }, err
}

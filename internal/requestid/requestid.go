// Package requestid carries the ID of a request from the handler that makes it to
// the handlers that name the request in lists and logs.
package requestid

// ID is the ID of one request.
type ID interface {
	// TXID returns the request's txid. The first call makes it. Any goroutine may
	// call it.
	TXID() string
}

const key = "orderly.ids"

// Set gives an ID to the request with these variables, which are the value of
// [github.com/caddyserver/caddy/v2/modules/caddyhttp.VarsCtxKey] in its context.
func Set(vars map[string]any, id ID) { vars[key] = id }

// Of returns the ID of the request with these variables, or nil if it has none.
func Of(vars map[string]any) ID {
	id, _ := vars[key].(ID)
	return id
}

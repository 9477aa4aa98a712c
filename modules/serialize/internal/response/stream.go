package response

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// isStream reports whether a response is of a kind that its client reads while it is
// being written.
func isStream(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || // and application/grpc+proto, application/grpc-web
		strings.EqualFold(header.Get("X-Accel-Buffering"), "no") || // as nginx knows it
		caddyhttp.IsIncremental(header)
}

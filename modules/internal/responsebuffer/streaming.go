package responsebuffer

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// isStream reports whether a response is not kept, since it is of a kind that its client
// reads while it is being written.
func isStream(header http.Header) bool {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	switch kind = strings.ToLower(strings.TrimSpace(kind)); kind {
	case "text/event-stream", "multipart/x-mixed-replace",
		"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines",
		"application/json-seq", "application/stream+json", "application/vnd.amazon.eventstream":
		return true
	}
	return strings.HasPrefix(kind, "application/grpc") || // and application/grpc+proto, application/grpc-web
		strings.HasPrefix(kind, "application/connect+") ||
		strings.EqualFold(header.Get("X-Accel-Buffering"), "no") || // as nginx knows it
		header.Get("Incremental") != "" && caddyhttp.IsIncremental(header)
}

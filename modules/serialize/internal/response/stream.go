package response

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// isStream reports whether a response is of a kind that its client reads while it is
// being written.
func isStream(header http.Header) bool {
	return isStreamingType(header.Get("Content-Type")) ||
		strings.EqualFold(header.Get("X-Accel-Buffering"), "no") || // as nginx knows it
		caddyhttp.IsIncremental(header)
}

func isStreamingType(contentType string) bool {
	name, _, _ := strings.Cut(contentType, ";")
	name = strings.TrimSpace(name)
	for _, stream := range []string{"text/event-stream", "application/x-ndjson", "multipart/x-mixed-replace"} {
		if strings.EqualFold(name, stream) {
			return true
		}
	}
	const grpc = "application/grpc" // and application/grpc+proto, application/grpc-web
	return len(name) >= len(grpc) && strings.EqualFold(name[:len(grpc)], grpc)
}

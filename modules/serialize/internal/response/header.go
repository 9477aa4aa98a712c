package response

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// restoreHeader makes the header of the response what it was when the handlers gave its
// status. What they have set since is not sent, except for trailers. It returns the
// header with that.
func (w *Writer) restoreHeader() (late http.Header) {
	header := w.ResponseWriter.Header()
	if w.headed == nil || maps.EqualFunc(header, w.headed, slices.Equal) {
		late, w.headed = w.headed, nil
		return late
	}
	late = maps.Clone(header)
	clear(header)
	maps.Copy(header, w.headed)
	w.headed = nil
	return late
}

// sniff sets the type of a response that begins with p, as the server does. That of
// HTTP/3 does so only if it gets p before the status, or in small parts.
func (w *Writer) sniff(p []byte) {
	if !w.http3 || w.begun || w.held != nil || w.headed.Get("Content-Encoding") != "" {
		return
	}
	if _, has := w.headed["Content-Type"]; has {
		return
	}
	w.headed.Set("Content-Type", http.DetectContentType(p))
}

// addTrailers adds the trailers to a header that has been sent.
func addTrailers(header, late http.Header) {
	for name, values := range late {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			header[name] = values
		}
	}
	for _, list := range late["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			name = http.CanonicalHeaderKey(strings.TrimSpace(name))
			if values, ok := late[name]; ok {
				header[name] = values
			}
		}
	}
}

// dropRepresentation removes what a handler has said of a response that is not
// sent.
func dropRepresentation(header http.Header) {
	for _, name := range []string{
		"Accept-Ranges", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Location", "Content-Range", "Content-Type", "Etag", "Expires", "Last-Modified", "Location", "Trailer",
	} {
		header.Del(name)
	}
}

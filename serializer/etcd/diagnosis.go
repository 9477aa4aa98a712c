package etcd

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// hints explain the causes of failed connections to people. gRPC passes causes on only as
// text. The first match is used.
var hints = []struct {
	text   string
	secure bool // only for https
	plain  bool // only for http
	hint   string
}{
	{text: "connection refused", hint: "nothing listens there (connection refused)"},
	{text: "no such host", hint: "the name was not found"},
	{text: "server misbehaving", hint: "the name could not be looked up"},
	{text: "first record does not look like a TLS handshake", secure: true, hint: "the member speaks http, the endpoint says https"},
	{text: "certificate required", secure: true, hint: "the member demands a client certificate (tls cert and key)"},
	{text: "tls: bad certificate", secure: true, hint: "the member does not accept our client certificate, or demands one (tls cert and key)"},
	{text: "tls: unknown certificate authority", secure: true, hint: "the member does not know the authority of our client certificate"},
	{text: "x509:", secure: true, hint: "the member's certificate is not trusted"},
	{text: "authentication handshake failed: EOF", secure: true, hint: "the member closed the connection; it may speak http, the endpoint says https"},
	{text: "authentication handshake failed: read tcp", secure: true, hint: "the member closed the connection; it may speak http, the endpoint says https"},
	{text: "error reading server preface: EOF", plain: true, hint: "the member closed the connection; it may speak https, the endpoint says http"},
	{text: "error reading server preface: http2: ", plain: true, hint: "the member answers something else; it may speak https, the endpoint says http"},
	{text: "connection reset by peer", plain: true, hint: "the member closed the connection; it may speak https, the endpoint says http"},
	{text: "no route to host", hint: "the network has no route to it"},
	{text: "network is unreachable", hint: "the network has no route to it"},
}

// hintFor explains an error in a few words. It returns "" if the error explains itself.
func hintFor(err error, secure bool) string {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "etcd refuses the username or the password"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "the user has no right to read and write the namespace"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "etcd demands a username and a password"
	}
	text := err.Error()
	for _, h := range hints {
		if strings.Contains(text, h.text) && (secure || !h.secure) && (!secure || !h.plain) {
			return h.hint
		}
	}
	return ""
}

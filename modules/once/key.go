package once

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// key is an idempotency key of one host and scope, in the two forms in which it is used. The key
// itself is not kept.
type key struct {
	hash   string      // its name in the storage, in queues and in logs
	sealer cipher.AEAD // of its records
}

// deriveKey derives both forms from a key, the scope and the host. Neither leads back, and
// keys of different hosts or scopes never meet.
func deriveKey(host, scope, text string) (key, error) {
	var secret []byte
	for _, part := range []string{host, scope, text} {
		secret = binary.AppendUvarint(secret, uint64(len(part)))
		secret = append(secret, part...)
	}
	const nameSize, secretSize = 16, 32
	derived, err := hkdf.Key(sha256.New, secret, []byte("orderly once"), "name and secret of records", nameSize+secretSize)
	if err != nil {
		return key{}, fmt.Errorf("deriving a key: %w", err)
	}
	block, err := aes.NewCipher(derived[nameSize:])
	if err != nil {
		return key{}, fmt.Errorf("preparing a record's cipher: %w", err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	return key{hex.EncodeToString(derived[:nameSize]), sealer}, err
}

// hostOf is the host of a request as keys know it: without regard to case, port and a final dot.
func hostOf(host string) string {
	name := (&url.URL{Host: host}).Hostname()
	return strings.TrimSuffix(strings.ToLower(name), ".")
}

// textOf expands the placeholders of a key. Caddy joins the values of a field or parameter that comes
// more than once by commas, which a key may have. So they become a line feed, which no key has.
func textOf(key string, r *http.Request, repl *caddy.Replacer) string {
	text, _ := repl.ReplaceFunc(key, func(name string, value any) (any, error) {
		fields := r.Header.Values(strings.TrimPrefix(name, "http.request.header."))
		parameters := r.URL.Query()[strings.TrimPrefix(name, "http.request.uri.query.")]
		if max(len(fields), len(parameters)) > 1 {
			value = "\n"
		}
		return value, nil
	})
	return text
}

// maxKey is the length of the longest key.
const maxKey = 255

// item is a string as an item of a structured field (RFC 9651), with its parameters.
var item = regexp.MustCompile(`^"((?:[^"\\]|\\["\\])*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:%?"(?:[^"\\]|\\["\\])*"|[^"; ]+))?)*$`)

var unescape = strings.NewReplacer(`\"`, `"`, `\\`, `\`)

// unquote returns a key without the quotes of a structured field, if it has them. Parameters are
// ignored. ok is false if the text is no key.
func unquote(text string) (key string, ok bool) {
	key = text
	if strings.HasPrefix(text, `"`) {
		found := item.FindStringSubmatch(text)
		if found == nil {
			return "", false
		}
		key = unescape.Replace(found[1])
	}
	hidden := func(r rune) bool { return r <= ' ' || r > '~' }
	return key, key != "" && len(key) <= maxKey && !strings.ContainsFunc(key, hidden)
}

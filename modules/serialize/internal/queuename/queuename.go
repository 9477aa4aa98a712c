// Package queuename makes the names of queues of a configured prefix: it expands the
// placeholders for a request, and says which names an expansion can have.
package queuename

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Prefix is a configured prefix: texts with placeholders in between.
type Prefix struct {
	// Names is the name of the queue, or with placeholders, that of all its queues: it ends
	// in *.
	Names string

	texts        []string // one more than placeholders
	placeholders []placeholder
	pattern      *regexp.Regexp // of the names; nil without placeholders
}

type placeholder struct {
	name string
	dot  string // the name if the host ends in a dot, which has an empty label of its own
	kind kind
	mark *strings.Replacer // hides what would end the value in the name; nil if nothing can
}

// kind is what a value is, and so how it stands in the name.
type kind struct {
	value   func(string) string
	pattern string // of what value returns, in a queue's name
}

var (
	asItIs     = kind{func(value string) string { return value }, `.*`}
	host       = kind{foldHost, `(?:%[0-9A-F]{2}|[^%A-Z])*`}
	credential = kind{hash, `(?:[0-9a-f]{16})?`}
)

// Parse splits a prefix as Caddy's replacer does.
func Parse(text string) (*Prefix, error) {
	const mark = "\x00"
	p := new(Prefix)
	marked, err := caddy.NewEmptyReplacer().ReplaceFunc(text, func(name string, _ any) (any, error) {
		p.placeholders = append(p.placeholders, placeholder{name: name, dot: afterDot(name), kind: kindOf(name)})
		return mark, nil
	})
	if err != nil {
		return nil, err
	}
	if p.texts = strings.Split(marked, mark); len(p.texts) != len(p.placeholders)+1 {
		return nil, errors.New("it must not have a NUL character")
	}
	if !p.Many() {
		p.Names = serializer.QueueName(text)
		return p, nil
	}
	p.Names = serializer.QueueNames(p.texts[0])
	pattern := ""
	for i := range p.placeholders {
		p.markEnd(i)
		pattern += quote(p.texts[i]) + p.placeholders[i].kind.pattern
	}
	pattern += quote(p.texts[len(p.placeholders)]) + "(?:%!)?"
	p.pattern = regexp.MustCompile("^(?:" + pattern + "|.{78,80}%~[0-9a-f]{32}_)$") // the latter is cut
	return p, nil
}

func quote(text string) string {
	return regexp.QuoteMeta(strings.TrimSuffix(serializer.QueueNames(text), "*"))
}

// Many reports whether the prefix has placeholders, and so a queue for each of their values.
func (p *Prefix) Many() bool { return len(p.placeholders) > 0 }

// Queue returns the name of a request's queue.
func (p *Prefix) Queue(r *http.Request) string {
	if !p.Many() {
		return p.Names
	}
	repl := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	dot := strings.HasSuffix(r.Host, ".") || strings.Contains(r.Host, ".:")
	b := make([]byte, 0, 192) // on the stack
	for i, ph := range p.placeholders {
		if dot {
			ph.name = ph.dot
		}
		value, _ := repl.GetString(ph.name)
		value = ph.kind.value(value)
		if ph.mark != nil {
			value = ph.mark.Replace(value)
		}
		b = append(append(b, p.texts[i]...), value...)
	}
	return serializer.QueueName(string(append(b, p.texts[len(p.placeholders)]...)))
}

// CanBe reports whether a request can come to the queue of a name, or if it ends in *, to one of
// those that it stands for. No host makes a name in capitals, and no credential stands in a name as
// it is. A name that was cut can be any that begins so.
func (p *Prefix) CanBe(name string) bool {
	start, all := strings.CutSuffix(name, "*")
	switch {
	case all:
		return serializer.Matches(name, strings.TrimSuffix(p.Names, "*")) || serializer.Matches(p.Names, start)
	case !p.Many():
		return name == p.Names
	}
	return serializer.Matches(p.Names, name) && p.pattern.MatchString(name)
}

// markEnd hides, in the value of a placeholder, the character that follows the placeholder in the
// prefix. So different values make different names: with "x_" and "y", `{a}_{b}` is "x~-_y", and with
// "x" and "_y" it is "x__y". If nothing follows, a character is added. The last value needs none.
func (p *Prefix) markEnd(i int) {
	of := &p.placeholders[i]
	if i == len(p.placeholders)-1 || isFixed(of.name) {
		return
	}
	p.texts[i+1] = cmp.Or(p.texts[i+1], "~")
	if of.kind.pattern == credential.pattern {
		return
	}
	of.mark = strings.NewReplacer("~", "~~", p.texts[i+1][:1], "~-")
	if after := p.texts[i+1][:1]; after == "~" || after == "-" {
		of.mark = strings.NewReplacer("=", "==", after, "=.")
	}
}

// isFixed reports whether a placeholder has the same value for all requests.
func isFixed(name string) bool {
	space, _, _ := strings.Cut(name, ".")
	return space == "env" || space == "file" || space == "system"
}

// kindOf knows the long names of placeholders, and the short ones of the Caddyfile.
func kindOf(name string) kind {
	name = strings.TrimPrefix(strings.ToLower(name), "http.request.")
	switch name {
	case "host", "hostport", "tls.server_name":
		return host
	case "header.cookie", "header.authorization", "header.proxy-authorization":
		return credential
	}
	for _, space := range []string{"header.", "uri.query.", "query.", "http.reverse_proxy.header.", "http.intercept.header."} {
		field, ok := strings.CutPrefix(name, space)
		if ok && (strings.Contains(field, "key") || strings.Contains(field, "token") || strings.Contains(field, "secret")) {
			return credential
		}
	}
	if strings.HasPrefix(name, "cookie.") {
		return credential
	}
	return asItIs
}

// afterDot is the name of a placeholder for a host that ends in a dot: its labels are counted
// from the end.
func afterDot(name string) string {
	const labels = "http.request.host.labels."
	if n, err := strconv.Atoi(strings.TrimPrefix(name, labels)); err == nil && strings.HasPrefix(name, labels) {
		return labels + strconv.Itoa(n+1)
	}
	return name
}

// foldHost returns a host, perhaps with a port, as Caddy's matcher compares it: in lower
// case, and without the brackets of an IPv6 address that has no port. A final dot means the
// same host to DNS.
func foldHost(value string) string {
	if strings.IndexFunc(value, func(r rune) bool { return r >= utf8.RuneSelf }) >= 0 {
		value = strings.ToUpper(value) // the long s is an s to the matcher, and is lower case
	}
	value = strings.ToLower(value)
	if name, port, found := strings.Cut(value, ".:"); found && !strings.Contains(port, ":") {
		return name + ":" + port
	}
	if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") {
		return value[1 : len(value)-1]
	}
	return strings.TrimSuffix(value, ".")
}

// hash stands for a credential. Of none, it is empty.
func hash(value string) string {
	if value == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:8])
}

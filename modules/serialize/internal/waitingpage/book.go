package waitingpage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Book finds the tickets of browsers by their cookies. A cookie is the name of a ticket
// and a signature, with a key that this process alone has. So nobody else can make one,
// and a restart makes all of them invalid.
type Book struct {
	tickets sync.Map // of *Ticket, by id
	key     string
}

// NewBook returns an empty book with a key of its own.
func NewBook() *Book { return &Book{key: rand.Text()} }

func (b *Book) add(t *Ticket) {
	t.id = rand.Text()
	b.tickets.Store(t.id, t)
}

func (b *Book) remove(t *Ticket) { b.tickets.CompareAndDelete(t.id, t) }

// Cookie names a ticket in a browser, which keeps it for so many seconds; 0 is until it is
// closed. The text identifies the ticket's queue.
func (b *Book) Cookie(r *http.Request, t *Ticket, queue string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r, queue), Value: b.sign(queue, t.id), Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: isSecure(r), SameSite: http.SameSiteLaxMode,
	}
}

// Find returns the ticket that a browser has in a queue, or nil. Sent reports whether it
// has sent any cookie for the queue. Other sites of the domain may have set some.
func (b *Book) Find(r *http.Request, queue string) (t *Ticket, sent bool) {
	for _, cookie := range r.CookiesNamed(cookieName(r, queue)) {
		sent = true
		id, _, _ := strings.Cut(cookie.Value, ".")
		found, ok := b.tickets.Load(id)
		if ok && hmac.Equal([]byte(cookie.Value), []byte(b.sign(queue, id))) {
			t = found.(*Ticket)
			t.proven.Store(true)
			return t, true
		}
	}
	return nil, sent
}

// sign is the value of the cookie of a ticket in a queue.
func (b *Book) sign(queue, id string) string {
	mac := hmac.New(sha256.New, []byte(b.key))
	_, _ = mac.Write([]byte(id + queue))
	return id + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookieName differs between queues, and does not tell their names. Over TLS it is one
// that no other site can set.
func cookieName(r *http.Request, queue string) string {
	sum := sha256.Sum256([]byte(queue))
	name := "orderly_waiting_" + hex.EncodeToString(sum[:6])
	if isSecure(r) {
		return "__Host-" + name
	}
	return name
}

// isSecure reports whether the browser speaks TLS, with this server or a trusted proxy.
func isSecure(r *http.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return r.TLS != nil || trusted && r.Header.Get("X-Forwarded-Proto") == "https"
}

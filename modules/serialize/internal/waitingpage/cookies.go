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
// and a restart makes all of them invalid. The zero value is an empty book.
type Book struct{ tickets sync.Map } // of *Ticket, by id

var key = sync.OnceValue(rand.Text)

// cookieAge is how many seconds a browser keeps a cookie. It may have those of many queues.
const cookieAge = 24 * 60 * 60

// setCookie names a ticket to a browser.
func setCookie(w http.ResponseWriter, r *http.Request, t *Ticket, space string) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r, space, t.about.Queue), Value: sign(t.id, space, t.about.Queue), Path: "/", MaxAge: cookieAge,
		HttpOnly: true, Secure: isSecure(r), SameSite: http.SameSiteLaxMode,
	})
}

// find returns the ticket that a browser has in a queue, or nil. Other sites of the domain
// may have set cookies, too.
func (b *Book) find(r *http.Request, space, queue string) *Ticket {
	for _, cookie := range r.CookiesNamed(cookieName(r, space, queue)) {
		id, _, _ := strings.Cut(cookie.Value, ".")
		found, ok := b.tickets.Load(id)
		if ok && hmac.Equal([]byte(cookie.Value), []byte(sign(id, space, queue))) {
			t := found.(*Ticket)
			t.proven.Store(true)
			return t
		}
	}
	return nil
}

// sign is the value of the cookie of a ticket in a queue.
func sign(id, space, queue string) string {
	mac := hmac.New(sha256.New, []byte(key()))
	_, _ = mac.Write([]byte(id + space + "\x00" + queue))
	return id + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookieName differs between queues, and does not tell their names. Over TLS it is one
// that no other site can set.
func cookieName(r *http.Request, space, queue string) string {
	sum := sha256.Sum256([]byte(space + "\x00" + queue))
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

package waitingpage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// Book finds the tickets of browsers by their cookies. A cookie is the name of a ticket
// and a signature, with a key that this process alone has. So nobody else can make one,
// and a restart makes all of them invalid. The zero value is an empty book.
//
// Each ticket has a cookie of its own name. So the end of one place cannot remove the
// cookie of the next, which another tab may have got meanwhile.
type Book struct{ tickets sync.Map } // of *Ticket, by id

var key = sync.OnceValue(rand.Text)

// Names of cookies begin so. Over TLS they have another beginning in front, with which no
// other site can set them.
const (
	cookiePrefix = "orderly_waiting_"
	securePrefix = "__Host-"
)

// leastCookieAge is for how long a browser keeps a cookie at least. It may have those of
// many queues. Each contact begins the time anew.
const leastCookieAge = 5 * time.Minute

// setCookie names the ticket to its browser.
func (t *Ticket) setCookie(w http.ResponseWriter, r *http.Request) {
	sum := sha256.Sum256([]byte(t.id))
	name := cookiePrefix + hex.EncodeToString(sum[:6])
	if isSecure(r) {
		name = securePrefix + name
	}
	sendCookie(w, r, name, sign(t.id), max(leastCookieAge, 2*t.hold)) // of which the second hold is to learn that it is lost
}

// sendCookie sends a cookie, which ends at once if its age is negative.
func sendCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: isSecure(r), SameSite: http.SameSiteLaxMode,
	})
}

// cookiesVar has the cookies that were taken out of a request.
const cookiesVar = "orderly.serialize.cookies"

// TakeCookies takes the cookies of this process out of a request, so that nothing behind the
// queues sees them. Its variables keep them for the queues. Those of another Caddy stay.
func TakeCookies(r *http.Request, vars map[string]any) {
	if !hasCookie(r) {
		return
	}
	var taken []*http.Cookie
	lines := slices.Clone(r.Header["Cookie"])
	for i, line := range lines {
		parts := slices.DeleteFunc(strings.Split(line, ";"), func(part string) bool {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			mine := strings.HasPrefix(strings.TrimPrefix(name, securePrefix), cookiePrefix) && isMine(value)
			if mine {
				taken = append(taken, &http.Cookie{Name: name, Value: value})
			}
			return mine
		})
		lines[i] = strings.TrimSpace(strings.Join(parts, ";"))
	}
	if len(taken) == 0 {
		return
	}
	vars[cookiesVar] = taken
	if lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" }); len(lines) == 0 {
		r.Header.Del("Cookie")
		return
	}
	r.Header["Cookie"] = lines
}

// hasCookie reports whether something is left in a request that may be a cookie of ours.
func hasCookie(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Cookie"], func(line string) bool { return strings.Contains(line, cookiePrefix) })
}

// taken are the cookies that were taken out of a request.
func taken(r *http.Request) []*http.Cookie {
	cookies, _ := caddyhttp.GetVar(r.Context(), cookiesVar).([]*http.Cookie)
	return cookies
}

// find returns the ticket that a browser has in a queue, or nil. Over TLS, other sites of
// the domain may have set cookies without the prefix.
func (b *Book) find(r *http.Request, space, queue string) *Ticket {
	for _, cookie := range taken(r) {
		t := b.ticketOf(cookie)
		if t != nil && t.space == space && t.about.Queue == queue && strings.HasPrefix(cookie.Name, securePrefix) == isSecure(r) {
			t.proven.Store(true)
			return t
		}
	}
	return nil
}

// endCookies removes the cookies of a request whose tickets have ended from its browser.
func (b *Book) endCookies(w http.ResponseWriter, r *http.Request) {
	for _, cookie := range taken(r) {
		if b.ticketOf(cookie) == nil {
			sendCookie(w, r, cookie.Name, "", -time.Second)
		}
	}
}

// ticketOf returns the ticket of a cookie of ours, or nil if it has ended.
func (b *Book) ticketOf(cookie *http.Cookie) *Ticket {
	id, _, _ := strings.Cut(cookie.Value, ".")
	found, _ := b.tickets.Load(id)
	t, _ := found.(*Ticket)
	return t
}

// sign is the value of the cookie of a ticket.
func sign(id string) string {
	mac := hmac.New(sha256.New, []byte(key()))
	_, _ = mac.Write([]byte(id))
	return id + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isMine reports whether this process has made a cookie.
func isMine(value string) bool {
	id, _, signed := strings.Cut(value, ".")
	return signed && hmac.Equal([]byte(value), []byte(sign(id)))
}

// isSecure reports whether the browser speaks TLS, with this server or a trusted proxy.
func isSecure(r *http.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return r.TLS != nil || trusted && r.Header.Get("X-Forwarded-Proto") == "https"
}

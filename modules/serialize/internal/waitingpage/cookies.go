package waitingpage

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
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
//
// Where turns are visits, a cookie names the browser in its queue, and outlives its tickets.
// All its requests share one ticket, and one that comes after its visit is known by its cookie.
// Before an opening, a cookie does so, too: each has one chance.
type Book struct {
	tickets  sync.Map // of *Ticket, by id
	openings sync.Map // of *Opening, by where its queues are kept, and their prefix
}

var key = sync.OnceValue(rand.Text)

// Names of cookies begin so. Over TLS they have another beginning in front, with which no
// other site can set them.
const (
	cookiePrefix = "orderly_waiting_"
	securePrefix = "__Host-"
)

// Where turns are visits, one of these begins the value of a cookie: it says whether the browser
// has had a visit. A cookie whose value begins with a hexadecimal digit or a capital letter ends
// when its ticket does. The kinds are compared as texts: visitor is the greater one.
const (
	newcomer = "n"
	visitor  = "v"
)

// leastCookieAge is for how long a browser keeps a cookie at least. It may have those of
// many queues. Each contact begins the time anew.
const leastCookieAge = 5 * time.Minute

// setCookie names the ticket to its browser. Where turns are visits, the cookie lasts. So it is not
// sent if the browser has one of this kind or a greater one.
func (t *Ticket) setCookie(w http.ResponseWriter, r *http.Request, k known, kind string) {
	if t.line.Load().Visits == nil {
		age := max(leastCookieAge, 2*t.hold()) // of which the second hold is to learn that it is lost
		if t.isRegistered() {
			age = max(age, registeredHold)
		}
		sendCookie(w, r, cookieName(r, t.id), sign(t.id), age)
	} else if k.kind < kind {
		sendCookie(w, r, cookieName(r, t.id), sign(kind+t.id), 0)
	}
}

func cookieName(r *http.Request, id string) string {
	name := cookiePrefix + hash(id)[:12]
	if isSecure(r) {
		name = securePrefix + name
	}
	return name
}

// SetsCookie reports whether an answer has a cookie of ours.
func SetsCookie(h http.Header) bool { return slices.ContainsFunc(h["Set-Cookie"], isSetCookie) }

// WithholdCookies takes our cookies out of an answer.
func WithholdCookies(h http.Header) {
	if h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], isSetCookie); len(h["Set-Cookie"]) == 0 {
		h.Del("Set-Cookie")
	}
}

func isSetCookie(line string) bool {
	return strings.HasPrefix(strings.TrimPrefix(line, securePrefix), cookiePrefix)
}

// sendCookie sends a cookie. It ends at once if its age is negative, and with the browser's
// session if it is 0.
func sendCookie(w http.ResponseWriter, r *http.Request, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: isSecure(r), SameSite: http.SameSiteLaxMode,
	})
}

// cookie is one of this process: the id of a ticket, and newcomer or visitor where turns are visits.
type cookie struct{ name, id, kind string }

// cookiesVar has the cookies that were taken out of a request.
const cookiesVar = "orderly.serialize.cookies"

// TakeCookies takes the cookies of this process out of a request, so that nothing behind the
// queues sees them. Its variables keep them for the queues. Those of another Caddy stay.
func TakeCookies(r *http.Request, vars map[string]any) {
	if !hasCookie(r) {
		return
	}
	var taken []cookie
	lines := slices.Clone(r.Header["Cookie"])
	for i, line := range lines {
		parts := slices.DeleteFunc(strings.Split(line, ";"), func(part string) bool {
			name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
			text, _, _ := strings.Cut(value, ".")
			if !strings.HasPrefix(strings.TrimPrefix(name, securePrefix), cookiePrefix) || !hmac.Equal([]byte(value), []byte(sign(text))) {
				return false
			}
			id := strings.TrimLeft(text, newcomer+visitor)
			taken = append(taken, cookie{name, id, strings.TrimSuffix(text, id)})
			return true
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
func taken(r *http.Request) []cookie {
	cookies, _ := caddyhttp.GetVar(r.Context(), cookiesVar).([]cookie)
	return cookies
}

// known is what the cookies of a request say of its browser in a queue.
type known struct {
	ticket *Ticket // or nil
	id     string  // of the browser where turns are visits, or before an opening; empty if no cookie says it
	kind   string  // newcomer or visitor, or empty; a visitor has or had a visit
}

// find returns what is known of a browser in a queue. Over TLS, other sites of the domain may
// have set cookies without the prefix. Of several tickets, the one with a visit counts.
func (b *Book) find(r *http.Request, space, queue string) (k known) {
	for _, c := range taken(r) {
		if strings.HasPrefix(c.name, securePrefix) != isSecure(r) {
			continue
		}
		if t := b.ticketOf(c.id); t != nil && t.line.Load().Space == space && t.about.Queue == queue {
			t.proven.Store(true)
			if visited, _, _ := t.Visited(); k.ticket == nil || visited > 0 {
				k.ticket = t
			}
		}
		if strings.HasPrefix(c.id, queueMark(space, queue)) {
			k.id, k.kind = c.id, max(k.kind, c.kind)
		}
	}
	if k.ticket != nil && k.id != "" {
		k.id = k.ticket.id
	}
	return k
}

// endCookies removes the cookies of a request whose tickets have ended from its browser, but
// not where turns are visits: they outlive their tickets.
func (b *Book) endCookies(w http.ResponseWriter, r *http.Request) {
	for _, c := range taken(r) {
		if c.kind == "" && b.ticketOf(c.id) == nil {
			sendCookie(w, r, c.name, "", -time.Second)
		}
	}
}

// queueMark begins the ids of a queue's browsers where turns are visits, or where it has an opening.
// By it, a cookie says its queue when there is no ticket any more.
func queueMark(space, queue string) string { return hash(space + "\x00" + queue)[:12] }

// ticketOf returns the ticket with an id, or nil if it has ended.
func (b *Book) ticketOf(id string) *Ticket {
	found, _ := b.tickets.Load(id)
	t, _ := found.(*Ticket)
	return t
}

// remove removes a ticket. A later one may have the same id.
func (b *Book) remove(t *Ticket) { b.tickets.CompareAndDelete(t.id, t) }

// sign is the value of a cookie. No other process can make it.
func sign(id string) string {
	mac := hmac.New(sha256.New, []byte(key()))
	_, _ = mac.Write([]byte(id))
	return id + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// isSecure reports whether the browser speaks TLS, with this server or a trusted proxy.
func isSecure(r *http.Request) bool {
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return r.TLS != nil || trusted && r.Header.Get("X-Forwarded-Proto") == "https"
}

package serialize

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// waitingQueue names a queue in cookies, without telling its name.
type waitingQueue [16]byte

// waitingQueue is the name of a queue for readers, or for all others. A ticket of one
// is not valid in the other.
func (s *Handler) waitingQueue(queue string, reader bool) (id waitingQueue) {
	text := s.engine.directory + "\x00" + queue
	if reader {
		text += "\x00reader"
	}
	sum := sha256.Sum256([]byte(text))
	copy(id[:], sum[:])
	return id
}

// waitingCookies are what a browser brings for a queue. Each ticket has a cookie with a
// name of its own, so that the answer that takes one away cannot hit the next.
type waitingCookies struct {
	prefix  string   // of the names
	names   []string // of all
	unknown []uint64 // numbers of tickets that this process does not know
	used    bool     // one is of a turn that has not ended
	age     int      // seconds for which a new one is kept; 0 is until the browser ends
}

// lostTime is how long after the longest wait a browser may come and learn that its
// place is gone. Browsers that never come again must not keep all cookies that they ever
// got: a prefix with placeholders has a cookie for each queue.
const lostTime = 24 * time.Hour

// longestCookie bounds the wait for which a cookie is kept. No browser keeps one for longer.
const longestCookie = 400 * 24 * time.Hour

// maxWaitingCookies bounds how many are read. A browser that opens several tabs at once
// has several for a moment, at most maxUnproven. Others may have set some for a wider path
// or domain.
const maxWaitingCookies = 2 * maxUnproven

// readWaitingCookies returns the ticket of a browser, or nil, and its cookies. Of two
// tickets it gives up the later one.
func (s *Handler) readWaitingCookies(r *http.Request, queue waitingQueue) (k *keptTicket, c waitingCookies) {
	c.prefix = "orderly_waiting_" + hex.EncodeToString(queue[:6]) + "_"
	if isSecure(r) {
		c.prefix = "__Host-" + c.prefix // which no other site can set
	}
	if timeout := time.Duration(*s.Timeout); timeout > 0 {
		c.age = int((min(timeout, longestCookie) + lostTime).Seconds())
	}
	read := 0
	for _, cookie := range r.Cookies() {
		if !strings.HasPrefix(cookie.Name, c.prefix) {
			continue
		}
		if read++; read > maxWaitingCookies {
			break
		}
		if !slices.Contains(c.names, cookie.Name) { // others may have set one of the same name
			c.names = append(c.names, cookie.Name)
		}
		id, token, ok := parseWaitingCookie(cookie.Value)
		if !ok {
			continue
		}
		switch found, used := keptTickets.find(id, queue); {
		case used:
			c.used = true
		case found == nil:
			c.unknown = append(c.unknown, token)
		case k == nil:
			k = found
		case found != k:
			k = keptTickets.merge(k, found)
		}
	}
	return k, c
}

func parseWaitingCookie(value string) (id ticketID, token uint64, ok bool) {
	secret, number, _ := strings.Cut(value, ".")
	b, err := base64.RawURLEncoding.DecodeString(secret)
	if err != nil || len(b) != len(id) {
		return id, 0, false
	}
	if number != "" {
		if token, err = strconv.ParseUint(number, 10, 64); err != nil {
			return id, 0, false
		}
	}
	return ticketID(b), token, true
}

// isSecure reports whether the browser speaks TLS, with this server or with a proxy
// that is trusted.
func isSecure(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	return trusted && r.Header.Get("X-Forwarded-Proto") == "https"
}

// name is the name of a ticket's cookie.
func (c *waitingCookies) name(k *keptTicket) string { return c.prefix + hex.EncodeToString(k.id[:3]) }

// give gives the browser the cookie of a ticket, and takes all others away.
func (c *waitingCookies) give(w http.ResponseWriter, r *http.Request, k *keptTicket) {
	value := base64.RawURLEncoding.EncodeToString(k.id[:])
	if token := k.token.Load(); token != 0 {
		value += "." + strconv.FormatUint(token, 10)
	}
	name := c.name(k)
	setWaitingCookie(w, r, &http.Cookie{Name: name, Value: value, MaxAge: c.age})
	c.names = slices.DeleteFunc(c.names, func(other string) bool { return other == name })
	c.take(w, r)
}

// take takes all cookies away from the browser.
func (c *waitingCookies) take(w http.ResponseWriter, r *http.Request) {
	for _, name := range c.names {
		setWaitingCookie(w, r, &http.Cookie{Name: name, MaxAge: -1})
	}
}

func setWaitingCookie(w http.ResponseWriter, r *http.Request, cookie *http.Cookie) {
	cookie.Path, cookie.HttpOnly, cookie.SameSite, cookie.Secure = "/", true, http.SameSiteLaxMode, isSecure(r)
	http.SetCookie(w, cookie)
}

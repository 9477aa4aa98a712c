package serialize

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/deadlines"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/response"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/waitingpage"
)

// The script of the page follows the place by a separate request to the page's
// address. The header distinguishes it from an event stream of the application
// there. Other sites' pages cannot send it, because browsers would ask first.
const (
	liveHeader = "Orderly-Waiting"
	liveValue  = "live"
)

func isLive(r *http.Request) bool {
	value, _, _ := strings.Cut(r.Header.Get(liveHeader), " ")
	return value == liveValue
}

// liveSeen is when somebody last saw the page. Its script says for how many seconds
// nobody has.
func liveSeen(r *http.Request) time.Time {
	_, unseen, _ := strings.Cut(r.Header.Get(liveHeader), " ")
	seconds, _ := strconv.ParseUint(unseen, 10, 31) // without it, somebody sees it now
	return time.Now().Add(-time.Duration(seconds) * time.Second)
}

// The events that the script understands.
const (
	liveEventPlace     = "place"     // where the browser stands
	liveEventTurn      = "turn"      // reload now: the turn has come, or a refusal
	liveEventUsed      = "used"      // another tab has taken the turn
	liveEventElsewhere = "elsewhere" // another process has the ticket
	liveEventGone      = "gone"      // there is no such ticket; reload
)

const (
	livePeriod     = time.Second      // between two reports of the place
	liveTime       = 30 * time.Second // of a stream. A new one shows that the browser is still there
	liveWriteLimit = 10 * time.Second
	liveSilence    = 10 * time.Second // before a comment shows proxies that the stream lives
)

// liveStream sends a browser its place.
type liveStream struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	language string
	last     string    // the event that was sent
	sent     time.Time // when
}

// livePlace is the data of an event.
type livePlace struct {
	Title    string `json:"title"`
	Place    string `json:"place"`
	Estimate string `json:"estimate"`
}

// serveLive follows the place of a browser.
func (s *Handler) serveLive(w http.ResponseWriter, r *http.Request, v *visit, k *keptTicket, cookies waitingCookies) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	begun, clocks := time.Now(), deadlines.Stop(w, r, 0)
	l := &liveStream{w: w, control: http.NewResponseController(response.Innermost(w)), language: waitingpage.ChooseLanguage(r.Header.Values("Accept-Language"))}
	defer func() {
		_ = l.control.SetWriteDeadline(time.Time{}) // the connection's next request has its own
		clocks.Restart(time.Since(begun))
	}()
	if k == nil {
		if cookies.used {
			return l.send(liveEventUsed, "{}")
		}
		if place, ok := s.placeElsewhere(v.queue, cookies.unknown); ok {
			return l.place(liveEventElsewhere, place)
		}
		return l.send(liveEventGone, "{}")
	}
	return l.follow(r, k, s.WaitingPage.stop)
}

// follow sends events until the turn has come, or the client or the server goes.
func (l *liveStream) follow(r *http.Request, k *keptTicket, stop <-chan struct{}) error {
	changes := keptTickets.watch(k, liveSeen(r))
	defer keptTickets.unwatch(k, changes)
	ticker := time.NewTicker(livePeriod)
	defer ticker.Stop()
	for end := time.Now().Add(liveTime); time.Now().Before(end); {
		if done, err := l.report(k, changes); done || err != nil {
			return err
		}
		select {
		case <-changes:
		case <-ticker.C:
		case <-stop:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// report sends what has become of the ticket.
func (l *liveStream) report(k *keptTicket, changes chan struct{}) (done bool, err error) {
	switch state, first := keptTickets.watched(k, changes); {
	case state == keptUsed:
		return true, l.send(liveEventUsed, "{}")
	case state == keptOver:
		return true, nil // the next stream says what has become of the browser's place
	case state == keptRefused:
		return true, l.send(liveEventTurn, "{}")
	case state == keptReady && first:
		return false, l.send(liveEventTurn, "{}")
	case state == keptReady:
		return false, nil
	}
	return false, l.place(liveEventPlace, k.shown())
}

func (l *liveStream) place(event string, place waitingpage.Place) error {
	texts := waitingpage.In(l.language)
	data, err := json.Marshal(livePlace{texts.Title(place), texts.Place(place), texts.Estimate(place)})
	if err != nil {
		return fmt.Errorf("waiting page: %w", err)
	}
	return l.send(event, string(data))
}

// send sends an event, unless it is the last one again.
func (l *liveStream) send(event, data string) error {
	text := "event: " + event + "\ndata: " + data + "\n\n"
	switch {
	case text != l.last:
		l.last = text
	case time.Since(l.sent) > liveSilence:
		text = ":\n\n"
	default:
		return nil
	}
	l.sent = time.Now()
	_ = l.control.SetWriteDeadline(l.sent.Add(liveWriteLimit)) // not every connection can do that
	if _, err := l.w.Write([]byte(text)); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	_ = http.NewResponseController(l.w).Flush()
	return nil
}

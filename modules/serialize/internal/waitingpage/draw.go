package waitingpage

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// drawAlgorithm is how the log names what order does.
const drawAlgorithm = "value = number of the first in the list with this value; of each value, the one with the least SHA-256 of 'seed value number' is drawn; " +
	"first come the drawn, by SHA-256 of 'seed value', then the others, by SHA-256 of 'seed value number'"

// lot is what a ticket that is registered needs to join its queue later, and its line of the list for
// the draw. The list is in the order of cookies, and the number of a line counts from 1.
type lot struct {
	serializer.Arrival
	ticket *Ticket
	chance string // the hash of whose chance a browser has: of the text that others may share, or of its id
	cookie string // the hash of the id in the cookie; the cookie's name has the beginning of it
	value  int    // the number of the first line whose browser shares the chance; its own if none does
	number int
	key    string // orders the places
}

// draw gives the tickets of a list their places. Those whose cookies are proven take part, and all
// others stand behind them.
func (l *Line) draw(queue string, registered map[*Ticket]*lot) {
	var list []*lot
	for t, c := range registered {
		if t.proven.Load() {
			list = append(list, c)
		}
	}
	log := l.Report.Logger.With(zap.String("queue", queue))
	log.Info("opening: the list is complete", zap.Int("number", len(list)), zap.String("sha256", number(list)))
	seed := rand.Text() // only now: the log shows that the list does not depend on it
	log.Info("opening: drawn", zap.String("seed", seed), zap.String("algorithm", drawAlgorithm))
	order(list, seed)
	for i, c := range list {
		c.ticket.drawn(l, c)
		log.Debug("opening: place", zap.Int("place", i+1), zap.Int("number", c.number), zap.String("cookie", c.cookie), zap.Int("value", c.value))
	}
	for t, c := range registered { // those of the list are no longer
		t.drawn(l, c)
	}
}

// number puts a list into the order of cookies, and returns the hash of the list as a text: on each
// line, the cookie's hash, a space and the value.
func number(list []*lot) string {
	slices.SortFunc(list, func(a, b *lot) int { return strings.Compare(a.cookie, b.cookie) })
	var text strings.Builder
	first := make(map[string]int)
	for i, c := range list {
		c.number = i + 1
		c.value = cmp.Or(first[c.chance], c.number)
		first[c.chance] = c.value
		fmt.Fprintf(&text, "%s %d\n", c.cookie, c.value)
	}
	return hash(text.String())
}

// order puts a list into the order of places. How many share a value makes no difference to when
// the one of them comes that is drawn.
func order(list []*lot, seed string) {
	byKey := func(a, b *lot) int { return strings.Compare(a.key, b.key) }
	const drawn, behind = "0", "1"
	for _, c := range list {
		c.key = behind + hash(fmt.Sprint(seed, " ", c.value, " ", c.number))
	}
	slices.SortFunc(list, byKey)
	taken := make(map[int]bool) // the values of which one is drawn
	for _, c := range list {
		if !taken[c.value] {
			taken[c.value], c.key = true, drawn+hash(fmt.Sprint(seed, " ", c.value))
		}
	}
	slices.SortFunc(list, byKey)
}

// hash is the SHA-256 of a text, as hexadecimal digits.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

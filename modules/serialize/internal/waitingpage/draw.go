package waitingpage

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
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
	chance chance

	cookie string // SHA-256 of the id in the cookie; the cookie's name has the beginning of it
	value  int    // the number of the first line whose browser shares the chance; its own if none does
	number int
	key    string // orders the places
}

// draw gives the tickets of a list their places. Those whose cookies are proven take part, and all
// others stand behind them.
func (l *Line) draw(queue string, registered map[*Ticket]*lot) {
	list, late := listOf(registered)
	log := l.Report.Logger.With(zap.String("queue", queue))
	log.Info("opening: the list is complete", zap.Int("number", len(list)), zap.String("sha256", hashOf(list)))
	seed := rand.Text() // only now: the log shows that the list does not depend on it
	log.Info("opening: drawn", zap.String("seed", seed), zap.String("algorithm", drawAlgorithm))
	order(list, seed)
	for _, c := range slices.Concat(list, late) {
		c.ticket.drawn(l.Rule, c)
	}
	if !log.Core().Enabled(zap.DebugLevel) {
		return
	}
	for i, c := range list {
		log.Debug("opening: place", zap.Int("place", i+1), zap.Int("number", c.number), zap.String("cookie", c.cookie), zap.Int("value", c.value))
	}
}

// listOf makes the list, and apart from it a list of those whose cookies are not proven.
func listOf(registered map[*Ticket]*lot) (list, late []*lot) {
	for t, c := range registered {
		sum := sha256.Sum256([]byte(t.id))
		c.cookie = hex.EncodeToString(sum[:])
		if t.proven.Load() {
			list = append(list, c)
		} else {
			late = append(late, c)
		}
	}
	slices.SortFunc(list, func(a, b *lot) int { return strings.Compare(a.cookie, b.cookie) })
	first := make(map[chance]int)
	for i, c := range list {
		c.number = i + 1
		c.value = cmp.Or(first[c.chance], c.number)
		first[c.chance] = c.value
	}
	return list, late
}

// hashOf is the SHA-256 of a list as a text: on each line, the cookie's hash, a space and the value.
func hashOf(list []*lot) string {
	hash := sha256.New()
	for _, c := range list {
		_, _ = fmt.Fprintf(hash, "%s %d\n", c.cookie, c.value)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// order puts a list into the order of places. How many share a value makes no difference to when
// the one of them comes that is drawn.
func order(list []*lot, seed string) {
	best := make(map[int]*lot)
	for _, c := range list {
		c.key = keyOf(seed, c.value, c.number)
		if b := best[c.value]; b == nil || c.key < b.key {
			best[c.value] = c
		}
	}
	const drawn, behind = "0", "1"
	for _, c := range list {
		if best[c.value] == c {
			c.key = drawn + keyOf(seed, c.value)
		} else {
			c.key = behind + c.key
		}
	}
	slices.SortFunc(list, func(a, b *lot) int { return strings.Compare(a.key, b.key) })
}

func keyOf(seed string, numbers ...int) string {
	for _, n := range numbers {
		seed += " " + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(seed))
	return string(sum[:])
}

package queueview

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// People name a queue by its prefix or by its name in a list.
func TestName(t *testing.T) {
	long := strings.Repeat("ä", 200)
	for text, want := range map[string]string{
		"shop_": "shop_", "shop_*": "shop_*", "*": "*", "k_a/b_": "k_a%2Fb_", "k_a%2Fb_": "k_a%2Fb_", "50%_*": "50%25_*", "50%25_*": "50%25_*",
		long: serializer.QueueName(long), serializer.QueueName(long): serializer.QueueName(long), "a\x1b": "a%1B", "p00001*": "p00001*", "p00001": "p00001%!", "p00001%!": "p00001%!",
	} {
		if got := Name(text); got != want {
			t.Errorf("%q is %q; expected %q", text, got, want)
		}
	}
}

// Bug: an operator read the end of a pause in another time zone than he had written.
func TestUntilTextNamesTheZone(t *testing.T) {
	end := time.Date(2026, 12, 24, 10, 0, 0, 0, time.FixedZone("CET", 3600))
	text, _ := strings.CutPrefix(UntilText(end), "until ")
	if got, err := time.ParseInLocation("2006-01-02 15:04:05 MST", text, time.Local); err != nil || !got.Equal(end) {
		t.Errorf("the end is %q, which is %v, %v; expected %v", text, got, err, end)
	}
}

// A text that a client chose makes no table wide. The name in logs stays whole. Bug: the path
// was cut off, not the host.
func TestRowsAreNarrow(t *testing.T) {
	long := strings.Repeat("x", 300)
	request := &serializer.Request{Method: long, Host: long, Path: long, ClientIP: long, TXID: long}
	row := Rows(time.Now(), []serializer.TicketState{{Request: request}})[0]
	if n := utf8.RuneCountInString(row.About); n > maxCell {
		t.Errorf("a cell has %d characters; expected at most %d", n, maxCell)
	}
	if !strings.Contains(row.About, "…"+strings.Repeat("x", maxCell/2)) {
		t.Errorf("a cell is %s; expected a short host, and the path", row.About)
	}
	if request.Path != long || row.TXID != long {
		t.Errorf("the path became %s, the name in logs %s", request.Path, row.TXID)
	}
}

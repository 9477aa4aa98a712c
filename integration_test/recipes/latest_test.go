package recipes

import (
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// Bug: a save that had waited too long got the status of one that a later one replaces, so
// its client thought that a later one had been accepted.
func TestTheLatestWaitsTooLong(t *testing.T) {
	k := cook(t, "The latest wins", "timeout 1m", "timeout 1s")
	first := testcaddy.Send(t, "PUT", k.url+"documents/a", "0")
	inside := k.Next("documents/a")
	want(t, testcaddy.Send(t, "PUT", k.url+"documents/a", "1"), 503, "")
	inside.Leave()
	want(t, first, 200, "served")
}

func TestTheLatestWins(t *testing.T) {
	k := cook(t, "The latest wins")
	save := func(path string, i int) <-chan testcaddy.Answer {
		return testcaddy.Send(t, "PUT", k.url+path, fmt.Sprint(i))
	}
	first := save("documents/a", 0)
	inside := k.Next("documents/a")
	waiting := save("documents/a", 1)
	k.awaitTickets(t, "document_a_", 2)
	last := save("Documents/a/", 2) // bug: it took no ticket, though the application may take it for the same
	want(t, waiting, 409, "")
	other := save("documents/b", 0) // of another document
	k.Next("documents/b").Leave()
	want(t, other, 200, "served")
	inside.Leave()
	want(t, first, 200, "served")
	if v := k.Next(); v.Body != "2" {
		t.Errorf("save %s was made; expected the last", v.Body)
	}
	k.OpenAll()
	want(t, last, 200, "served")
}

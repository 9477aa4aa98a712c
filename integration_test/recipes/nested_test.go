package recipes

import (
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A quiet client waits for one request of another client, however many that has sent.
// In the queue of the other client, it would wait for all of them.
func TestFairShares(t *testing.T) {
	const crowd = 64 // requests that one client sends at once
	k := cook(t, "Fair shares")
	for key, want := range map[string]int{"quiet": 1, "flood": crowd} {
		var answers []<-chan testcaddy.Answer
		for range crowd {
			answers = append(answers, k.get(t, "flood", "X-Api-Key", "flood"))
		}
		k.awaitTickets(t, "share_d8864644c15d33be_", crowd) // the key's hash
		k.awaitTickets(t, "app_", 1)
		answers = append(answers, k.get(t, "quiet", "X-Api-Key", key))
		k.awaitTickets(t, "share_", crowd+1)
		if key == "quiet" { // it has a ticket in both queues
			k.awaitTickets(t, "app_", 2)
		}
		ahead := 0
		for i := range answers {
			v := k.Next()
			if v.Leave(); v.Name == "quiet" {
				ahead = i
			}
		}
		for _, answer := range answers {
			testcaddy.Await(t, answer).Want(t, 200)
		}
		if ahead != want {
			t.Errorf("%d requests went before the quiet client's with the key %s; expected %d", ahead, key, want)
		}
	}
}

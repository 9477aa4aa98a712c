package recipes

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// crowd is how many requests one client sends at once.
const crowd = 64

// aheadOf lets requests go until one with this path has come, and counts those
// before it.
func (k *kitchen) aheadOf(path string) (ahead int) {
	for {
		v := k.Next()
		name := v.Name
		v.Leave()
		if name == path {
			return ahead
		}
		ahead++
	}
}

// drain lets so many requests go, and expects all answers to be right.
func (k *kitchen) drain(t *testing.T, n int, answers ...<-chan testcaddy.Answer) {
	t.Helper()
	for range n {
		k.Next().Leave()
	}
	for _, answer := range answers {
		want(t, answer, 200, "served")
	}
}

// queue is a queue as the admin API lists it.
func (k *kitchen) queue(t *testing.T, prefix string) (found serializer.QueueState) {
	t.Helper()
	var queues []serializer.QueueState
	if err := json.Unmarshal([]byte(k.Ask("/serialize/queues")), &queues); err != nil {
		t.Fatal(err)
	}
	for _, q := range queues {
		if q.Prefix == prefix {
			return q
		}
	}
	return found
}

func (k *kitchen) awaitQueue(t *testing.T, prefix string, inside, waiting int) {
	t.Helper()
	wait.Eventually(t, fmt.Sprintf("in %s %d are inside and %d wait", prefix, inside, waiting), func() error {
		if q := k.queue(t, prefix); q.Inside != inside || q.Waiting != waiting {
			return fmt.Errorf("%d are inside and %d wait", q.Inside, q.Waiting)
		}
		return nil
	})
}

// A quiet client waits for one request of another client, however many that has sent.
// In the queue of the other client, it would wait for all of them.
func TestFairShares(t *testing.T) {
	k := cook(t, "Fair shares")
	waits := make(map[string]int)
	for _, key := range []string{"quiet", "flood"} {
		var answers []<-chan testcaddy.Answer
		for range crowd {
			answers = append(answers, k.get(t, "flood", "X-Api-Key", "flood"))
		}
		k.awaitQueue(t, "share_flood_", 1, crowd-1)
		k.awaitQueue(t, "app_", 1, 0)
		quiet := k.get(t, "quiet", "X-Api-Key", key)
		if key == "quiet" { // it has a ticket in both queues
			k.awaitQueue(t, "share_quiet_", 1, 0)
			k.awaitQueue(t, "app_", 1, 1)
		} else {
			k.awaitQueue(t, "share_flood_", 1, crowd)
		}
		waits[key] = k.aheadOf("quiet")
		k.drain(t, crowd-waits[key], append(answers, quiet)...)
	}
	if waits["quiet"] != 1 || waits["flood"] != crowd {
		t.Errorf("%d requests went before the quiet client's with a share of its own, and %d without; expected 1 and %d", waits["quiet"], waits["flood"], crowd)
	}
}

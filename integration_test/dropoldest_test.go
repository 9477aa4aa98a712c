//go:build unix

package integration_test

import (
	"fmt"
	"net/http"
	"testing"
)

// Of a hundred saves in a row, the first and the last reach the upstream. The others are
// refused as soon as the next one has come, even if they come to two processes.
func TestLatestWins(t *testing.T) {
	t.Parallel()
	const saves = 100
	for processes := 1; processes <= 2; processes++ {
		t.Run(fmt.Sprint(processes), func(t *testing.T) {
			t.Parallel()
			one := start(t, setup{global: "metrics", site: behindQueue("prefix save_\nqueue_length 1\nwhen_full drop_oldest\nerror_code 409") +
				"\nhandle_errors 409 {\nrespond {http.serialize.reason}\n}"})
			at := []*caddy{one}
			if processes == 2 {
				at = append(at, one.another())
			}
			first := one.holder(t)
			waiting := arrive(t, one, "save1")
			for i := 2; i < saves; i++ {
				next := arrive(t, at[i%processes], fmt.Sprint("save", i))
				if r := (<-waiting).Want(t, http.StatusConflict); r.Text != "superseded" {
					t.Fatalf("save %d was refused because of %q", i-1, r.Text)
				}
				waiting = next
			}
			one.WantNever("save99")
			one.release(first)
			one.wantServed(waiting)
			one.WantOrder("holder", "save99")
			one.awaitTickets(0)
			if processes == 1 {
				one.wantMetric(`requests_total{outcome="superseded",queue="save_"}`, "98")
				one.wantMetric(`requests_total{outcome="queue_full",queue="save_"}`, "0")
			}
		})
	}
}

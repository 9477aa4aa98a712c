package load

import (
	"context"
	"fmt"
)

// Gather sends one request on each of n connections and waits for no answer.
// The function it returns, also with an error, closes them.
func Gather(ctx context.Context, addr, path string, n int) (disperse func(), err error) {
	r := newRun(Plan{Addrs: []string{addr}, Path: path, Clients: n})
	clients, err := r.connect(ctx)
	for _, c := range clients {
		if err != nil {
			break
		}
		if _, err = c.conn.Write(r.request); err != nil {
			err = fmt.Errorf("sending a request: %w", err)
		}
	}
	return func() { r.closeAll(clients) }, err
}

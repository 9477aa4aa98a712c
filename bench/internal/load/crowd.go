package load

import (
	"context"
	"fmt"
)

// Crowd is a number of clients that have asked once and wait.
type Crowd struct{ clients []*client }

// Gather sends one request on each of n connections.
func Gather(ctx context.Context, addr, path string, n int) (*Crowd, error) {
	r := newRun(Plan{Addrs: []string{addr}, Path: path, Clients: n})
	clients, err := r.connect(ctx)
	c := &Crowd{clients}
	if err != nil {
		c.Disperse()
		return nil, err
	}
	for _, client := range clients {
		if _, err := client.conn.Write(r.request); err != nil {
			c.Disperse()
			return nil, fmt.Errorf("sending a request: %w", err)
		}
	}
	return c, nil
}

// Disperse closes all connections.
func (c *Crowd) Disperse() {
	for _, client := range c.clients {
		client.close()
	}
}

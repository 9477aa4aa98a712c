// Package testrelay is a link between a store and its server that a test slows, holds and cuts.
package testrelay

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay is a link to a server. Its faults are changed by Set.
type Relay struct {
	Addr string // for clients

	To     string        // where new connections lead
	Parted bool          // nothing comes through
	Deaf   bool          // no answer comes through
	Mute   bool          // nothing comes through new connections
	Most   int           // the longest message that comes through, in bytes; 0 is any
	Delay  time.Duration // of answers

	// Asked is called with each request, may change the faults, and reports whether the answer gets lost,
	// with the connection. Nil loses nothing.
	Asked func(request []byte) (loses bool)

	listener net.Listener
	mu       sync.Mutex
	changed  *sync.Cond
	conns    map[net.Conn]bool
}

// Start makes a link to an address until the end of the test.
func Start(t testing.TB, to string) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{Addr: listener.Addr().String(), To: to, listener: listener, conns: make(map[net.Conn]bool)}
	r.changed = sync.NewCond(&r.mu)
	go r.serve()
	t.Cleanup(func() {
		_ = listener.Close()
		r.Set(func() { r.Parted, r.Deaf, r.Most = false, false, 0 })
		r.Cut()
	})
	return r
}

// Set changes what happens to what passes.
func (r *Relay) Set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	r.changed.Broadcast()
}

// Part keeps everything back, or lets it through again.
func (r *Relay) Part(parted bool) { r.Set(func() { r.Parted = parted }) }

// Hold keeps answers back, or lets them through again.
func (r *Relay) Hold(held bool) { r.Set(func() { r.Deaf = held }) }

// Slow delays answers.
func (r *Relay) Slow(delay time.Duration) { r.Set(func() { r.Delay = delay }) }

// Lose has the answer to the next request with a text get lost. It returns whether that has come.
func (r *Relay) Lose(text string) (lost func() bool) {
	asked := new(atomic.Bool)
	r.Set(func() {
		r.Asked = func(request []byte) bool {
			return bytes.Contains(request, []byte(text)) && !asked.Swap(true)
		}
	})
	return asked.Load
}

// Cut closes all connections.
func (r *Relay) Cut() {
	r.Set(func() {
		for conn := range r.conns {
			_ = conn.Close()
		}
		clear(r.conns)
	})
}

// Lead has new connections go elsewhere, and cuts those that are open.
func (r *Relay) Lead(to string) {
	r.Set(func() { r.To = to })
	r.Cut()
}

func (r *Relay) serve() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		var to string
		r.Set(func() {
			if r.conns[client] = true; !r.Mute {
				to = r.To
			}
		})
		if to == "" {
			continue
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			_ = client.Close()
			continue
		}
		r.Set(func() { r.conns[server] = true })
		lost := new(atomic.Bool)
		go r.copy(server, client, false, lost)
		go r.copy(client, server, true, lost)
	}
}

// packet is data that has been on the way since it was read.
type packet struct {
	data []byte
	read time.Time
}

func (r *Relay) copy(to, from net.Conn, answers bool, lost *atomic.Bool) {
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			buffer := make([]byte, 64<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				packets <- packet{buffer[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		_ = to.Close()
		_ = from.Close()
		for range packets { // until the reader has ended, too
		}
	}()
	for p := range packets {
		if !r.pass(p, answers, lost) {
			return
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}

// pass waits until data may come through. It returns false for an answer that is lost.
func (r *Relay) pass(p packet, answer bool, lost *atomic.Bool) bool {
	r.mu.Lock()
	for r.Parted || answer && r.Deaf || r.Most > 0 && len(p.data) > r.Most {
		r.changed.Wait()
	}
	if !answer && r.Asked != nil && r.Asked(p.data) {
		lost.Store(true)
	}
	delay := r.Delay
	r.mu.Unlock()
	if !answer {
		return true
	}
	time.Sleep(time.Until(p.read.Add(delay)))
	return !lost.Load()
}

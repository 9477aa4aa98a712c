package test

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// relay is a link between an engine and etcd that can be slowed, held and cut.
type relay struct {
	to       string
	listener net.Listener

	mu      sync.Mutex
	resumed *sync.Cond
	held    bool          // answers of etcd do not come through
	parted  bool          // nothing comes through
	delay   time.Duration // of all that passes, in each direction
	conns   map[net.Conn]bool
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: u.Host, listener: listener, conns: make(map[net.Conn]bool)}
	r.resumed = sync.NewCond(&r.mu)
	go r.serve()
	t.Cleanup(func() {
		listener.Close()
		r.cut()
		r.hold(false)
		r.part(false)
	})
	return r
}

func (r *relay) url() string { return "http://" + r.listener.Addr().String() }

func (r *relay) serve() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		to := r.to
		r.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		r.mu.Lock()
		r.conns[client], r.conns[server] = true, true
		r.mu.Unlock()
		go r.copy(server, client, false)
		go r.copy(client, server, true)
	}
}

// packet is data that has been on the way since it was read.
type packet struct {
	data []byte
	read time.Time
}

func (r *relay) copy(to io.WriteCloser, from io.Reader, answers bool) {
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				packets <- packet{buffer[:n], time.Now()}
			}
			if err != nil {
				return
			}
		}
	}()
	defer to.Close()
	for p := range packets {
		time.Sleep(time.Until(p.read.Add(r.pass(answers))))
		if _, err := to.Write(p.data); err != nil {
			for range packets { // until the reader has ended, too
			}
			return
		}
	}
}

// pass waits while answers are held, and returns the delay.
func (r *relay) pass(answers bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.parted || answers && r.held {
		r.resumed.Wait()
	}
	return r.delay
}

// hold keeps answers back, or lets them through again.
func (r *relay) hold(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
	r.resumed.Broadcast()
}

// part keeps everything back, or lets it through again.
func (r *relay) part(parted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parted = parted
	r.resumed.Broadcast()
}

// slow delays all that passes, in each direction.
func (r *relay) slow(delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = delay
}

// cut closes all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns {
		conn.Close()
	}
	clear(r.conns)
}

// lead has new connections go elsewhere, and cuts those that are open.
func (r *relay) lead(t testing.TB, to string) {
	t.Helper()
	u, err := url.Parse(to)
	must(t, err)
	r.mu.Lock()
	r.to = u.Host
	r.mu.Unlock()
	r.cut()
}

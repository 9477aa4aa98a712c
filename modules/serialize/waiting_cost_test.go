package serialize

import (
	"net/http"
	"net/http/cookiejar"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Bug: a place took a goroutine, and 5.6 KB with it. With a path of 15 KB, it took 34 KB.
// Bug: on a busy machine, the first ones were refused after a minute, the default timeout.
func TestWaitingPlacesAreSmall(t *testing.T) {
	const places = 300
	s := newShop(t, 1, time.Hour)
	s.hold, s.change = time.Hour, func(h *Handler) { h.Visit = nil } // however busy the machine is
	s.load(1)
	engine := s.current.Load().engine
	defer entered(t, engine, s.Name()).Leave()
	getThePage := func() {
		cookies, _ := cookiejar.New(nil)
		for range 2 { // which proves its cookie
			if w := sends(s, cookies, "/"+strings.Repeat("p", 15<<10)); w.Code != http.StatusServiceUnavailable {
				t.Fatalf("answer %d; expected the page", w.Code)
			}
		}
	}
	getThePage() // which makes what is made once
	before := memoryInUse()
	for range places {
		getThePage()
	}
	size := (memoryInUse() - before) / places
	t.Logf("a place takes %d bytes", size)
	if size > 2<<10 {
		t.Errorf("a place takes %d bytes; expected 2 KB at most", size)
	}
	if _, waiting := engine.Count(s.Name()); waiting != places+1 {
		t.Errorf("%d wait; expected %d", waiting, places+1)
	}
}

// memoryInUse is that of the heap and of stacks.
func memoryInUse() int {
	runtime.GC()
	runtime.GC() // shrinks the stacks that the first has looked at
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

package heldbody

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A body that fits in memory costs two allocations: itself, and its reader.
func TestAllocationsOfABody(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 1<<10)
	source := bytes.NewReader(text)
	into := make([]byte, 2<<10)
	body := io.NopCloser(source)
	got := testing.AllocsPerRun(500, func() {
		source.Reset(text)
		held := New(body)
		if err := held.ReadMemory(64<<10, int64(len(text))); err != nil || !held.Ended() {
			t.Fatal(err)
		}
		if n, err := held.Read(into); n != len(text) || err != nil {
			t.Fatal(n, err)
		}
	})
	if got > 2 {
		t.Errorf("a body allocates %.0f times", got)
	}
}

// Memory grows with what has arrived, up to the size of the buffer and one
// byte.
func TestMemoryOfABody(t *testing.T) {
	for _, c := range []struct{ come, length, limit, most int64 }{
		{1, 1 << 20, 1 << 30, firstRead + 1},
		{10_000, -1, 1 << 30, 4*firstRead + 4},
		{1 << 20, -1, 100_000, 100_001},
		{1 << 20, 1 << 20, 100_000, 100_001},
		{100, 100, 100_000, 101},
	} {
		held := New(io.NopCloser(io.LimitReader(endless{}, c.come)))
		if err := held.ReadMemory(c.limit, c.length); err != nil {
			t.Fatal(err)
		}
		if got := int64(cap(held.memory)); got > c.most {
			t.Errorf("%d bytes of %d, with a buffer of %d: %d bytes of memory", c.come, c.length, c.limit, got)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A proxy's transport may still read the body when another handler does, and the
// end of the visit may free it meanwhile. Bug: unguarded reads moved the memory
// twice, and the panic in the transport's goroutine ended the process.
func TestBodyReadByTwo(t *testing.T) {
	const size = 96 << 10
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i % 251)
	}
	for _, c := range []struct {
		name         string
		memory, file int64
		end          func(*Body)
	}{
		{"in memory", size, 0, nil},
		{"in a file", 4 << 10, size, nil},
		{"in both, and still to come", 32 << 10, 32 << 10, nil},
		{"freed", 32 << 10, 32 << 10, (*Body).Free},
		{"closed", 32 << 10, 32 << 10, func(b *Body) { _ = b.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 30 {
				got := readByTwo(t, halfHeld(t, sent, c.memory, c.file), c.end)
				for i, n := range countOf(sent) {
					if got[i] > n || c.end == nil && got[i] != n {
						t.Fatalf("byte %d was read %d times, of %d", i, got[i], n)
					}
				}
			}
		})
	}
}

// halfHeld returns a body that holds the first part of what was sent, up to
// the limits.
func halfHeld(t *testing.T, sent []byte, memory, file int64) *Body {
	held := New(io.NopCloser(bytes.NewReader(sent)))
	err := held.ReadMemory(memory, int64(len(sent)))
	if err == nil && file > 0 && !held.Ended() {
		err = held.ReadFile(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Free)
	return held
}

// readByTwo reads a body in two goroutines, ends it meanwhile, and returns how
// often each byte was read.
func readByTwo(t *testing.T, held *Body, end func(*Body)) (counts [256]int) {
	var both sync.WaitGroup
	var read [2]bytes.Buffer
	for i := range read {
		both.Go(func() {
			// Reads of an odd length, and not by WriteTo: they meet at every edge.
			_, err := io.CopyBuffer(struct{ io.Writer }{&read[i]}, struct{ io.Reader }{held}, make([]byte, 61))
			if err != nil && !(end != nil && errors.Is(err, http.ErrBodyReadAfterClose)) {
				t.Error(err)
			}
		})
	}
	if end != nil {
		both.Go(func() { end(held) })
	}
	both.Wait()
	for i := range read {
		for b, n := range countOf(read[i].Bytes()) {
			counts[b] += n
		}
	}
	return counts
}

func countOf(text []byte) (counts [256]int) {
	for _, b := range text {
		counts[b]++
	}
	return counts
}

// Freeing or closing a body must not wait for a client that sends nothing: the
// reader may be blocked until the connection's deadline.
func TestCloseOfABodyThatIsWaitedFor(t *testing.T) {
	pipe, client := io.Pipe()
	defer client.Close()
	entered := make(chan struct{})
	held := New(struct {
		io.Reader
		io.Closer
	}{readerFunc(func(p []byte) (int, error) { close(entered); return pipe.Read(p) }), pipe})
	read := make(chan error, 1)
	go func() {
		_, err := held.Read(make([]byte, 1))
		read <- err
	}()
	<-entered
	closed := make(chan error, 1)
	go func() {
		held.Free()
		closed <- held.Close()
	}()
	for _, done := range []chan error{closed, read} {
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("still blocked")
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

package uniqueid

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memoryStore is a RunStore whose next answers tests can choose. Each call of
// NextRun first takes a word from gate, if there is one.
type memoryStore struct {
	gate chan error

	mu   sync.Mutex
	last uint32
	err  error
}

func (s *memoryStore) NextRun(ctx context.Context) (uint32, error) {
	if s.gate != nil {
		select {
		case err := <-s.gate:
			if err != nil {
				return 0, err
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.last = min(s.last+1, MaxRun+1)
	return s.last, nil
}

func (s *memoryStore) set(last uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.err = last, err
}

// take makes n call numbers and checks that they are of one run, counted from
// first.
func take(t *testing.T, gen *CallNumberGenerator, n int, run uint32, first int) {
	t.Helper()
	for i := range n {
		number, err := gen.New(t.Context())
		check(t, err)
		if number.Version() != 0 || number.Run() != run || int(number.Sequence()) != first+i {
			t.Fatalf("made %d.%d.%d, want 0.%d.%d", number.Version(), number.Run(), number.Sequence(), run, first+i)
		}
	}
}

func TestCallNumberWhileStoreIsGone(t *testing.T) {
	gone := errors.New("no such disk")
	store := &memoryStore{}
	gen := Must(NewCallNumberGenerator(store))
	take(t, gen, 1, 1, 0)
	store.set(1, gone)
	take(t, gen, RunLen-1, 1, 1)
	for range 3 {
		number, err := gen.New(t.Context())
		if want := "making a call number: taking the next run: no such disk"; number != 0 || !errors.Is(err, gone) || err.Error() != want {
			t.Fatalf("made %v, %v", number, err)
		}
	}
	store.set(1, nil)
	take(t, gen, RunLen, 2, 0)
	take(t, gen, 1, 3, 0)
}

// A fetch ahead that fails is tried again before the run is used up.
func TestCallNumberPrefetchRecovers(t *testing.T) {
	store := &memoryStore{gate: make(chan error)}
	gen := Must(NewCallNumberGenerator(store))
	go func() { store.gate <- nil }()
	take(t, gen, prefetchAt+1, 1, 0)
	store.gate <- errors.New("no such disk")
	waitForFetch(gen)
	take(t, gen, prefetchEvery, 1, prefetchAt+1)
	store.gate <- nil
	waitForFetch(gen)
	take(t, gen, RunLen-prefetchAt-prefetchEvery-1, 1, prefetchAt+prefetchEvery+1)
	take(t, gen, 1, 2, 0)
}

func waitForFetch(gen *CallNumberGenerator) {
	gen.mu.Lock()
	underWay := gen.fetch
	gen.mu.Unlock()
	if underWay != nil {
		<-underWay.ctx.Done()
	}
}

func TestCallNumberStoreThatErrs(t *testing.T) {
	for _, tt := range []struct {
		name string
		last uint32
		want string
	}{
		{"goes back", 0, "making a call number: taking the next run: the store gave 1 after 6 and would repeat numbers"},
		{"stands", 5, "making a call number: taking the next run: the store gave 6 after 6 and would repeat numbers"},
		{"goes too far", MaxRun, "making a call number: taking the next run: the store gave 1073741824: all 1073741824 runs of call numbers are used up"},
	} {
		store := &memoryStore{last: 5}
		gen := Must(NewCallNumberGenerator(store))
		take(t, gen, prefetchAt, 6, 0)
		store.set(tt.last, nil)
		take(t, gen, RunLen-prefetchAt, 6, prefetchAt)
		if _, err := gen.New(t.Context()); err == nil || err.Error() != tt.want {
			t.Errorf("%s: error is %v", tt.name, err)
		}
	}
}

// A caller that gives up leaves the fetch to the next.
func TestCallNumberCallerGivesUp(t *testing.T) {
	store := &memoryStore{gate: make(chan error)}
	gen := Must(NewCallNumberGenerator(store))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := gen.New(ctx)
	if want := "making a call number: waiting for the next run: context canceled"; err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
	store.gate <- nil
	take(t, gen, 1, 1, 0)
	take(t, gen, RunLen-1, 1, 1)
	time.AfterFunc(time.Millisecond, gen.Close) // which the store answers with its context's error
	_, err = gen.New(t.Context())
	if want := "making a call number: taking the next run: the generator is closed"; !errors.Is(err, ErrClosed) || err.Error() != want {
		t.Errorf("error after Close is %v", err)
	}
}

// hangingStore ignores the context, as a storage on a file system that hangs.
type hangingStore struct {
	calls  atomic.Int32
	answer chan uint32
}

func (s *hangingStore) NextRun(context.Context) (uint32, error) {
	s.calls.Add(1)
	return <-s.answer, nil
}

// Bug: if the store did not answer, callers waited for a call number for ever.
func TestCallNumberStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{answer: make(chan uint32)}
		gen := Must(NewCallNumberGenerator(store))
		defer gen.Close()
		began := time.Now()
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				if _, err := gen.New(context.Background()); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error is %v", err)
				}
			})
		}
		waiting.Wait()
		if waited := time.Since(began); waited != fetchTimeout {
			t.Errorf("waited %v, want %v", waited, fetchTimeout)
		}
		for range 3 {
			_, err := gen.New(t.Context())
			if want := "making a call number: taking the next run: the store has not answered for 30s: context deadline exceeded"; err == nil || err.Error() != want {
				t.Errorf("error is %v", err)
			}
			time.Sleep(time.Minute)
		}
		if calls := store.calls.Load(); calls != 1 {
			t.Errorf("%d calls of the store hang", calls)
		}
		store.answer <- 7 // it comes back after all
		synctest.Wait()
		take(t, gen, 1, 7, 0)
	})
}

// While the store hangs, numbers come from the current run. After that, callers
// wait, and Close releases them with an error.
func TestCallNumberPrefetchThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hangingStore{answer: make(chan uint32)}
		gen := Must(NewCallNumberGenerator(store))
		go func() { store.answer <- 1 }()
		take(t, gen, RunLen, 1, 0)
		time.AfterFunc(time.Second, gen.Close)
		if _, err := gen.New(context.Background()); !errors.Is(err, ErrClosed) {
			t.Errorf("error is %v", err)
		}
		if calls := store.calls.Load(); calls != 2 {
			t.Errorf("the store was called %d times", calls)
		}
		store.answer <- 2
	})
}

// Bug: each core that took a share of the run left numbers behind. They came later
// than greater ones, and were still there when other callers already got the error.
func TestCallNumbersInOrderToTheEnd(t *testing.T) {
	store := &memoryStore{}
	gen := Must(NewCallNumberGenerator(store))
	var made sync.Map
	first, err := gen.New(t.Context())
	check(t, err)
	made.Store(first, true)
	store.mu.Lock()
	store.err = errors.New("storage gone")
	store.mu.Unlock()
	var crowd sync.WaitGroup
	for range 64 {
		crowd.Go(func() {
			for range 100 {
				if id, err := gen.New(t.Context()); err == nil {
					made.Store(id, true)
				}
			}
		})
	}
	crowd.Wait()
	total := 0
	made.Range(func(any, any) bool { total++; return true })
	for last := (CallNumber(0)); ; total++ {
		id, err := gen.New(t.Context())
		if err != nil {
			break
		}
		if id.fields() <= last.fields() {
			t.Fatalf("made %v after %v", id.Sequence(), last.Sequence())
		}
		last = id
	}
	if total != RunLen {
		t.Errorf("made %d numbers of a run before the error; expected %d", total, RunLen)
	}
}

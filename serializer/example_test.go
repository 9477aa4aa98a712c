package serializer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
)

// Two callers need exclusive access to something. The second one enters when
// the first one has left.
func Example() {
	ctx := context.Background()
	engine := serializer.NewMemory(serializer.MemoryOptions{})
	defer engine.Close()

	first, err := engine.Enter(ctx, serializer.Arrival{Queue: "ledger"})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		second, err := engine.Enter(ctx, serializer.Arrival{Queue: "ledger", Timeout: time.Minute})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer second.Leave()
		fmt.Println("the second is inside, with a greater token:", second.Token() > first.Token())
	}()
	fmt.Println("the first is inside")
	first.Leave()
	<-done

	// Output:
	// the first is inside
	// the second is inside, with a greater token: true
}

// A job that must not overlap with itself, whichever process runs it: it gives
// up if another process is running it. The queue can be one that a Caddy uses.
func ExampleOpenFile() {
	dir, err := os.MkdirTemp("", "queues")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	engine, err := serializer.OpenFile(dir, serializer.FileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()

	job := func(patience time.Duration, work func()) {
		turn, err := engine.Enter(context.Background(), serializer.Arrival{Queue: "nightly_", Timeout: patience})
		var refused *serializer.Refused
		if errors.As(err, &refused) {
			fmt.Println("not now:", refused.Reason)
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		defer turn.Leave()
		work()
	}
	job(time.Minute, func() {
		fmt.Println("at work")
		job(50*time.Millisecond, func() { fmt.Println("never printed") })
	})

	// Output:
	// at work
	// not now: timeout
}

// Readers are inside side by side, a writer is alone.
func ExampleRule() {
	reader := serializer.Rule{Shared: true}
	writer := serializer.Rule{Limit: 1}
	fmt.Println("a reader behind two readers enters:", reader.Admits(2, 2))
	fmt.Println("a writer behind them enters:", writer.Admits(2, 2))
	fmt.Println("a reader behind that writer enters:", reader.Admits(3, 2))

	// Output:
	// a reader behind two readers enters: true
	// a writer behind them enters: false
	// a reader behind that writer enters: false
}

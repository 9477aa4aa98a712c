package serializer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// A job that must not overlap with itself: it gives up if it has to wait for too long. With
// a store of lock files, that holds for all processes of the machine.
func ExampleEngine_Enter() {
	engine := serializer.New(memory.New(memory.Options{}), serializer.Options{})
	defer engine.Close()

	job := func(patience time.Duration, work func()) {
		turn, err := engine.Enter(context.Background(), serializer.Arrival{Queue: "nightly_", Timeout: patience})
		if refused, ok := errors.AsType[*serializer.Refused](err); ok {
			fmt.Println("not now:", refused.Reason)
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

package memory_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/memory"
)

// At most three of ten workers are inside, in the order in which they came.
func Example() {
	engine := serializer.New(memory.New(memory.Options{}), serializer.Options{})
	defer engine.Close()
	three := serializer.Arrival{Queue: "resize", Rule: serializer.Rule{Limit: 3}}
	var done sync.WaitGroup
	for range 10 {
		done.Go(func() {
			if err := engine.Do(context.Background(), three, func(context.Context) error { return nil }); err != nil {
				log.Print(err)
			}
		})
	}
	done.Wait()
	fmt.Println("all are done")
	// Output: all are done
}

package lockfile_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/lockfile"
)

// A job that cron starts must not run beside itself. If it still runs, the next one ends at
// once.
func Example() {
	store, err := lockfile.Open("/var/lib/nightly/queues", lockfile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	engine := serializer.New(store, serializer.Options{})
	defer engine.Close()
	err = engine.Do(context.Background(), serializer.Arrival{Queue: "import", NoWait: true}, func(ctx context.Context) error {
		fmt.Println("at work")
		return ctx.Err()
	})
	if errors.Is(err, serializer.ErrTimeout) {
		fmt.Println("the last one still runs")
	} else if err != nil {
		log.Fatal(err)
	}
}

package redis_test

import (
	"context"
	"fmt"
	"log"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/redis"
)

// One machine at a time makes reports. The work stops if the lease is lost, and the token keeps
// what it still writes out of newer data.
func Example() {
	store, err := redis.Open(redis.Options{Addresses: []string{"10.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	engine := serializer.New(store, serializer.Options{})
	defer engine.Close()
	err = engine.Do(context.Background(), serializer.Arrival{Queue: "reports"}, func(ctx context.Context) error {
		for page := 1; page <= 100 && ctx.Err() == nil; page++ {
			fmt.Printf("page %d, written with token %d\n", page, serializer.TurnOf(ctx).Token())
		}
		return context.Cause(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}

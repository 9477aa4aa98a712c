package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer"
	"github.com/orderly-http/caddy-orderly/serializer/redis"
)

// One machine at a time makes reports. The work stops if the lease is lost, and the token
// keeps what it still writes out of newer data.
func Example() {
	store, err := redis.Open(redis.Options{Addresses: []string{"10.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	engine := serializer.New(store, serializer.Options{})
	defer engine.Close()
	turn, err := engine.Enter(context.Background(), serializer.Arrival{Queue: "reports", Timeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer turn.Leave()
	for page := 1; page <= 100 && turn.Context().Err() == nil; page++ {
		fmt.Printf("page %d, written with token %d\n", page, turn.Token())
	}
	if err := context.Cause(turn.Context()); err != nil {
		log.Fatal(err)
	}
}

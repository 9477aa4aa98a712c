// Slow is the application of the quick start. Each request takes a second, and the answer
// says how many requests were inside together.
package main

import (
	"fmt"
	"log"
	"net/http"
	"sync/atomic"
	"time"
)

var inside atomic.Int64

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		before := inside.Add(1)
		time.Sleep(time.Second)
		together := max(before, inside.Load())
		inside.Add(-1)
		_, _ = fmt.Fprintf(w, "%s: %d inside\n", r.URL.Path, together)
	})
	log.Print("listening on localhost:9000")
	log.Fatal(http.ListenAndServe("localhost:9000", nil))
}

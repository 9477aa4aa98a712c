package serialize

import (
	"context"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

// sampling has the contexts of configurations for which a goroutine samples.
var sampling sync.Map

// sample records every few seconds what the queues of all prefixes are like, for the picture on
// the status page, until a configuration ends. It is called for each of its handlers.
func (r *registry) sample(configuration context.Context) {
	if _, others := sampling.LoadOrStore(configuration.Done(), true); others {
		return
	}
	go func() {
		defer sampling.Delete(configuration.Done())
		ticker := time.NewTicker(telemetry.SampleInterval)
		defer ticker.Stop()
		for {
			select {
			case <-configuration.Done():
				return
			case now := <-ticker.C:
				for _, prefix := range r.allPrefixes() {
					prefix.Sample(now)
				}
			}
		}
	}()
}

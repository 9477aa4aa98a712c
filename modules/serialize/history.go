package serialize

import (
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/telemetry"
)

type samplerKey struct{}

// samplers has one sampler while there are handlers.
var samplers = caddy.NewUsagePool()

// sampler records every few seconds what the queues of all prefixes are like, for the picture
// on the status page.
type sampler struct{ stop chan struct{} }

// Destruct implements [caddy.Destructor].
func (s sampler) Destruct() error {
	close(s.stop)
	return nil
}

func newSampler() (caddy.Destructor, error) {
	s := sampler{make(chan struct{})}
	go s.run()
	return s, nil
}

func (s sampler) run() {
	ticker := time.NewTicker(telemetry.SampleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case now := <-ticker.C:
			for _, prefix := range registered.allPrefixes() {
				prefix.Sample(now)
			}
		}
	}
}

// addHandler makes a handler known. A sampler runs as long as one is.
func (r *registry) addHandler(s *Handler) error {
	r.handlers.Store(s, true)
	_, _, err := samplers.LoadOrNew(samplerKey{}, newSampler)
	return err
}

// removeHandler takes back addHandler, if that was called.
func (r *registry) removeHandler(s *Handler) {
	if _, known := r.handlers.LoadAndDelete(s); known {
		_, _ = samplers.Delete(samplerKey{})
	}
}

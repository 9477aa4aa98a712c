//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// The suite pages has browsers that wait with a page that shows their place.
var pagesSuite = suite{name: "pages", measure: measurePages, tables: pagesTables}

const (
	keptPages    = "kept places"
	polledPages  = "pages that reload themselves every 5 s"
	streamsPages = "pages with event streams"
	salePages    = "a sale"
	pollPeriod   = 5 * time.Second
	// Programs ahead of the browsers let the queue move while those are watched.
	aheadHold = 100 * time.Millisecond
	ahead     = 400
)

func measurePages(ctx context.Context, b *bench) error {
	return b.withBackend(ctx, func(backend *servers.Backend) error {
		var trials []trial
		for _, dir := range []string{"", b.disk} {
			who := b.serializing(dir, reverseProxy(backend), 0, "waiting_page {\n\t\tafter 100ms\n\t\thold 10m\n\t}", "timeout 10m")
			for _, part := range []struct {
				setting string
				places  int
				watch   func(*browsers, context.Context) // nil leaves them alone
			}{
				{keptPages, pick(b.quick, 2000, 100_000), nil},
				{polledPages, pick(b.quick, 500, 10_000), (*browsers).poll},
				{streamsPages, pick(b.quick, 500, 10_000), (*browsers).follow},
			} {
				at := who.Case
				at.Setting, at.Waiting = part.setting, part.places
				trials = append(trials, trial{at, func(ctx context.Context) (figures.Values, error) {
					server, err := who.start(ctx)
					if err != nil {
						return nil, err
					}
					defer server.Stop()
					return watchPages(ctx, server, backend, part.places, part.watch)
				}})
			}
			seller := b.serializing(dir, reverseProxy(backend), 0, saleQueue...)
			at := seller.Case
			at.Setting, at.Clients, at.Hold = salePages, pick(b.quick, 500, 10_000), saleTurn
			trials = append(trials, trial{at, func(ctx context.Context) (figures.Values, error) {
				server, err := seller.start(ctx)
				if err != nil {
					return nil, err
				}
				defer server.Stop()
				return holdSale(ctx, server, backend, at.Clients)
			}})
		}
		return b.alternate(ctx, min(b.runs, 2), trials...)
	})
}

// watchPages gives browsers their places, and measures what they take: memory, and,
// while they watch, the processor.
func watchPages(ctx context.Context, server *servers.Server, backend *servers.Backend, places int, watch func(*browsers, context.Context)) (figures.Values, error) {
	plan := load.Plan{Addrs: server.Addrs, Clients: ahead, Path: backend.Path(aheadHold, 0)}
	if watch == nil { // nothing moves
		plan.Clients, plan.Path = 1, backend.Path(time.Hour, 0)
	}
	disperse, err := load.Gather(ctx, plan)
	defer disperse()
	if err != nil {
		return nil, err
	}
	if err := awaitTickets(ctx, server, 1); err != nil {
		return nil, err
	}
	before, err := server.MemStats(ctx)
	if err != nil {
		return nil, err
	}
	bs := &browsers{url: "http://" + server.Addrs[0] + backend.Path(0, 0), cookies: make([]*http.Cookie, places)}
	bs.client.Transport = &http.Transport{MaxIdleConnsPerHost: places}
	defer bs.client.CloseIdleConnections()
	if err := bs.arrive(ctx); err != nil {
		return nil, err
	}
	if watch == nil {
		bs.client.CloseIdleConnections()
		if err := awaitTickets(ctx, server, places+1); err != nil {
			return nil, err
		}
		after, err := settledMemory(ctx, server)
		return figures.Values{figures.Place: inUse(after, before) / float64(places)}, err
	}
	ctx, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { watch(bs, ctx) })
	defer done.Wait()
	defer stop()
	time.Sleep(pollPeriod + time.Second) // until all have come
	used, err := server.ProcessorTime()
	if err != nil {
		return nil, err
	}
	time.Sleep(pollPeriod)
	more, err := server.ProcessorTime()
	if err != nil {
		return nil, err
	}
	after, err := settledMemory(ctx, server)
	return figures.Values{figures.Load: 100 * float64(more-used) / float64(pollPeriod), figures.Connection: inUse(after, before) / float64(places)}, err
}

// awaitTickets waits until so many are in the queue, or more.
func awaitTickets(ctx context.Context, server *servers.Server, n int) error {
	for range 100 {
		if now, err := server.Tickets(ctx); err != nil || now >= n {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("fewer than %d are in the queue", n)
}

// browsers have a cookie each. Their addresses differ, as X-Forwarded-For has it.
type browsers struct {
	client  http.Client
	url     string
	cookies []*http.Cookie
}

// visitors is how many browsers ask at the same time.
const visitors = 512

// each calls a function for each browser, for many at the same time.
func (bs *browsers) each(visit func(i int) error) error {
	slots, errs := make(chan struct{}, visitors), make([]error, len(bs.cookies))
	var done sync.WaitGroup
	for i := range bs.cookies {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			errs[i] = visit(i)
		})
	}
	done.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ask sends a navigation of a browser. The caller closes the response.
func (bs *browsers) ask(ctx context.Context, i int, live string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, bs.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
	if live != "" {
		r.Header.Set("Orderly-Waiting", live)
	}
	if bs.cookies[i] != nil {
		r.AddCookie(bs.cookies[i])
	}
	return bs.client.Do(r)
}

// arrive gives each browser its place.
func (bs *browsers) arrive(ctx context.Context) error {
	return bs.each(func(i int) error {
		resp, err := bs.ask(ctx, i, "")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable || len(resp.Cookies()) != 1 {
			return fmt.Errorf("browser %d got no waiting page: %s", i, resp.Status)
		}
		bs.cookies[i] = resp.Cookies()[0]
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
}

// poll has each browser reload its page once in a period.
func (bs *browsers) poll(ctx context.Context) {
	bs.spread(ctx, func(i int) {
		for ctx.Err() == nil {
			bs.read(ctx, i, "")
			load.Sleep(ctx, pollPeriod)
		}
	})
}

// follow has each browser hold a stream of events.
func (bs *browsers) follow(ctx context.Context) {
	bs.spread(ctx, func(i int) {
		for ctx.Err() == nil {
			bs.read(ctx, i, "live")
		}
	})
}

// spread begins with all browsers within a period.
func (bs *browsers) spread(ctx context.Context, live func(i int)) {
	var done sync.WaitGroup
	for i := range bs.cookies {
		done.Go(func() {
			load.Sleep(ctx, pollPeriod*time.Duration(i)/time.Duration(len(bs.cookies)))
			live(i)
		})
	}
	done.Wait()
}

func (bs *browsers) read(ctx context.Context, i int, live string) {
	resp, err := bs.ask(ctx, i, live)
	if err != nil {
		load.Sleep(ctx, time.Second)
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func pagesTables(s figures.Set) []table {
	server := label("queue", func(c figures.Case) string { c.Setting = ""; return name(c) })
	isSale := func(c figures.Case) bool { return c.Setting == salePages }
	tables := []table{
		tabulate(s, "Memory of Caddy for a browser's place, heap and stack, without a connection.", s.Cases(figures.Place),
			server, label("places", waiting), spread("bytes", figures.Place)),
		tabulate(s, "What browsers cost that wait while the queue moves ten times a second.", slices.DeleteFunc(s.Cases(figures.Load), isSale),
			server, label("browsers", waiting), label("what they have", func(c figures.Case) string { return c.Setting }), spread("% of a core", figures.Load),
			median("bytes for each, heap and stack", figures.Connection)),
	}
	if sales := s.Cases(figures.Sale); len(sales) > 0 {
		tables = append(tables, tabulate(s, "A sale: all come within 10 seconds, and each has a turn of 100 ms, 20 at a time.", sales,
			server, label("browsers", clients), spread("seconds until all were served", figures.Sale), spread("places idle, %", figures.Idle),
			median("turns missed", figures.Missed), spread("% of a core", figures.Load), median("most memory, MB", figures.Memory)))
	}
	return tables
}

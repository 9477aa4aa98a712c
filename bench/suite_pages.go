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
		// Requests that stop the queues of the other trials stay inside that backend for an
		// hour. The sale counts who is inside, so it has a backend of its own.
		return b.withBackend(ctx, func(shop *servers.Backend) error { return measureWaitingPages(ctx, b, backend, shop) })
	})
}

func measureWaitingPages(ctx context.Context, b *bench, backend, shop *servers.Backend) error {
	var trials []trial
	for _, dir := range []string{"", b.disk} {
		who := b.serializing(dir, reverseProxy(backend), 0, "waiting_page {\n\t\tafter 100ms\n\t\thold 10m\n\t}", "timeout 10m")
		for _, part := range []struct {
			setting string
			places  int
			watch   func(*browser, context.Context) // nil leaves them alone
		}{
			{keptPages, pick(b.quick, 2000, 100_000), nil},
			{polledPages, pick(b.quick, 500, 10_000), (*browser).poll},
			{streamsPages, pick(b.quick, 500, 10_000), (*browser).watch},
		} {
			at := who.Case
			at.Setting, at.Waiting = part.setting, part.places
			trials = append(trials, b.started(who, at, func(ctx context.Context, server *servers.Server) (figures.Values, error) {
				return watchPages(ctx, server, backend, part.places, part.watch)
			}))
		}
		seller := b.serializing(dir, reverseProxy(shop), 0, saleQueue...)
		at := seller.Case
		at.Setting, at.Clients, at.Hold = salePages, pick(b.quick, 500, 10_000), saleTurn
		trials = append(trials, b.started(seller, at, func(ctx context.Context, server *servers.Server) (figures.Values, error) {
			return holdSale(ctx, server, shop, at.Clients)
		}))
	}
	return b.alternate(ctx, min(b.runs, 2), trials...)
}

// watchPages gives browsers their places, and measures what they take: memory, and,
// while they watch, the processor.
func watchPages(ctx context.Context, server *servers.Server, backend *servers.Backend, places int, watch func(*browser, context.Context)) (figures.Values, error) {
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
	transport := &http.Transport{MaxIdleConnsPerHost: places}
	defer transport.CloseIdleConnections()
	bs := make(browsers, places)
	for i := range bs {
		bs[i] = newBrowser("http://"+server.Addrs[0]+backend.Path(0, 0), transport, i)
	}
	if err := bs.arrive(ctx); err != nil {
		return nil, err
	}
	if watch == nil {
		transport.CloseIdleConnections()
		if err := awaitTickets(ctx, server, places+1); err != nil {
			return nil, err
		}
		after, err := settledMemory(ctx, server)
		return figures.Values{figures.Place: inUse(after, before) / float64(places)}, err
	}
	ctx, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { bs.spread(ctx, watch) })
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

type browsers []*browser

// visitors is how many browsers ask at the same time.
const visitors = 512

// arrive gives each browser its place, many at the same time.
func (bs browsers) arrive(ctx context.Context) error {
	slots, errs := make(chan struct{}, visitors), make([]error, len(bs))
	var done sync.WaitGroup
	for i, p := range bs {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			errs[i] = p.arrive(ctx)
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

func (p *browser) arrive(ctx context.Context) error {
	resp, err := p.ask(ctx, false)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || len(resp.Cookies()) != 1 {
		return fmt.Errorf("a browser got no waiting page: %s", resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// spread begins with all browsers within a period.
func (bs browsers) spread(ctx context.Context, live func(*browser, context.Context)) {
	var done sync.WaitGroup
	for i, p := range bs {
		done.Go(func() {
			load.Sleep(ctx, pollPeriod*time.Duration(i)/time.Duration(len(bs)))
			live(p, ctx)
		})
	}
	done.Wait()
}

// poll reloads the page once in a period.
func (p *browser) poll(ctx context.Context) {
	for ctx.Err() == nil {
		p.read(ctx, false)
		load.Sleep(ctx, pollPeriod)
	}
}

// watch holds a stream of events.
func (p *browser) watch(ctx context.Context) {
	for ctx.Err() == nil {
		p.read(ctx, true)
	}
}

func (p *browser) read(ctx context.Context, live bool) {
	resp, err := p.ask(ctx, live)
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

//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

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
	visitors  = 512 // browsers that come at the same time
)

func measurePages(ctx context.Context, b *bench) error {
	// Requests that stop the queues of the other trials stay inside their backend for an
	// hour. The sale counts who is inside, so it has a backend of its own.
	shop, err := servers.StartBackend(ctx)
	if err != nil {
		return err
	}
	defer shop.Stop()
	var trials []trial
	for _, dir := range []string{"", b.disk} {
		who := b.serializing(dir, b.reverseProxy(), "waiting_page {\n\t\tafter 100ms\n\t\thold 10m\n\t}", "timeout 10m")
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
				return watchPages(ctx, server, b.backend, part.places, part.watch)
			}))
		}
		seller := b.serializing(dir, reverseProxy(shop), saleQueue...)
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
	if err = errors.Join(err, awaitTickets(ctx, server, 1)); err != nil {
		return nil, err
	}
	before, err := server.MemStats(ctx)
	if err != nil {
		return nil, err
	}
	browsers, transport := openBrowsers(server, backend.Path(0, 0), places)
	defer transport.CloseIdleConnections()
	var arrivals errgroup.Group
	arrivals.SetLimit(visitors)
	for _, p := range browsers {
		arrivals.Go(func() error { return p.arrive(ctx) })
	}
	if err := arrivals.Wait(); err != nil {
		return nil, err
	}
	values := make(figures.Values)
	if watch == nil {
		transport.CloseIdleConnections()
		err := awaitTickets(ctx, server, places+1)
		after, settled := settledMemory(ctx, server)
		values[figures.Place] = inUse(after, before) / float64(places)
		return values, errors.Join(err, settled)
	}
	ctx, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	for i, p := range browsers { // all begin within a period
		watching.Go(func() {
			load.Sleep(ctx, pollPeriod*time.Duration(i)/time.Duration(places))
			watch(p, ctx)
		})
	}
	defer watching.Wait()
	defer stop()
	time.Sleep(pollPeriod + time.Second) // until all have come
	used, err := server.Worked(func() error { time.Sleep(pollPeriod); return nil })
	after, settled := settledMemory(ctx, server)
	values[figures.Load], values[figures.Connection] = 100*float64(used)/float64(pollPeriod), inUse(after, before)/float64(places)
	return values, errors.Join(err, settled)
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

// browser asks for one page, with cookies and an address of its own: that is what
// X-Forwarded-For has.
type browser struct {
	client http.Client
	url    string
	header http.Header
}

// openBrowsers are browsers with a common stock of connections.
func openBrowsers(server *servers.Server, path string, n int) ([]*browser, *http.Transport) {
	transport := &http.Transport{MaxIdleConnsPerHost: n}
	browsers := make([]*browser, n)
	for i := range browsers {
		cookies, _ := cookiejar.New(nil) // which has no error
		address := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		browsers[i] = &browser{http.Client{Transport: transport, Jar: cookies}, "http://" + server.Addrs[0] + path, http.Header{
			"Accept": {"text/html"}, "X-Forwarded-For": {address},
		}}
	}
	return browsers, transport
}

// ask loads the page, or its live part. The caller closes the response.
func (p *browser) ask(ctx context.Context, live bool) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header = p.header.Clone()
	if live {
		r.Header.Set("Orderly-Waiting", "live")
	}
	return p.client.Do(r)
}

// arrive gets the browser its place.
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

// A sale: all browsers come within a time, follow their places live, and have a turn
// each, saleInside at a time.
const (
	saleInside = 20
	saleTurn   = 100 * time.Millisecond
	saleDoors  = 10 * time.Second // within which all come
	saleTries  = 20               // how many errors a browser survives
)

var saleQueue = []string{
	fmt.Sprintf("concurrency %d", saleInside), "timeout 2h", "queue_length 20000", "error_code 503", "hold_timeout 1m", "waiting_page",
}

// shopper is a browser with JavaScript. All count what they have seen together.
type shopper struct {
	*browser
	missed, failed *atomic.Int64 // turns, and browsers that gave up
}

func holdSale(ctx context.Context, server *servers.Server, backend *servers.Backend, people int) (figures.Values, error) {
	browsers, transport := openBrowsers(server, backend.Path(saleTurn, 0), people)
	defer transport.CloseIdleConnections()
	var missed, failed atomic.Int64
	begun := time.Now()
	used, err := server.Worked(func() error {
		var shoppers sync.WaitGroup
		for i, p := range browsers {
			shoppers.Go(func() {
				load.Sleep(ctx, saleDoors*time.Duration(i)/time.Duration(people))
				shopper{p, &missed, &failed}.buy(ctx)
			})
		}
		shoppers.Wait()
		return ctx.Err()
	})
	took := time.Since(begun)
	memory, noMemory := server.MostMemory()
	most, noCount := backend.Most(ctx)
	if err := errors.Join(err, noMemory, noCount); err != nil {
		return nil, err
	}
	if most > saleInside {
		return nil, fmt.Errorf("%d were inside at once", most)
	}
	busy := time.Duration(people) * saleTurn / saleInside
	return figures.Values{
		figures.Sale: took.Seconds(), figures.Idle: 100 * (1 - busy.Seconds()/took.Seconds()), figures.Missed: float64(missed.Load()),
		figures.Failed: float64(failed.Load()), figures.Load: 100 * float64(used) / float64(took), figures.Memory: memory,
	}, nil
}

// buy goes to the shop until it is served.
func (p shopper) buy(ctx context.Context) {
	for errs := 0; ctx.Err() == nil; {
		served, err := p.visit(ctx)
		if served {
			return
		}
		if err == nil {
			err = p.follow(ctx)
		}
		if err != nil {
			if errs++; errs > saleTries {
				p.failed.Add(1)
				return
			}
			load.Sleep(ctx, time.Second)
		}
	}
}

// visit loads the page.
func (p shopper) visit(ctx context.Context) (served bool, err error) {
	resp, err := p.ask(ctx, false)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusOK:
		return true, nil
	case !strings.Contains(string(text), "data-waiting"):
		return false, fmt.Errorf("answer %s", resp.Status)
	case strings.Contains(string(text), `class="lost"`):
		p.missed.Add(1)
	}
	return false, nil
}

// follow reads the events of the page until it is to be loaded again. Streams end now
// and then, and a new one goes on.
func (p shopper) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		resp, err := p.ask(ctx, true)
		if err != nil {
			return err
		}
		reload := awaitEvent(resp.Body)
		_ = resp.Body.Close()
		if reload {
			return nil
		}
	}
	return ctx.Err()
}

// awaitEvent reports whether one came after which the page is loaded again.
func awaitEvent(events io.Reader) bool {
	for lines := bufio.NewScanner(events); lines.Scan(); {
		switch lines.Text() {
		case "event: turn", "event: gone", "event: used":
			return true
		}
	}
	return false
}

func pagesTables(s figures.Set) []table {
	server := label("queue", func(c figures.Case) string { c.Setting = ""; return name(c) })
	watched := only(s.Cases(figures.Load), func(c figures.Case) bool { return c.Setting != salePages })
	return []table{
		tabulate(s, "Memory of Caddy for a browser's place, heap and stack, without a connection.", s.Cases(figures.Place),
			server, label("places", waiting), spread("bytes", figures.Place)),
		tabulate(s, "What browsers cost that wait while the queue moves ten times a second.", watched,
			server, label("browsers", waiting), label("what they have", func(c figures.Case) string { return c.Setting }), spread("% of a core", figures.Load),
			median("bytes for each, heap and stack", figures.Connection)),
		tabulate(s, "A sale: all come within 10 seconds, and each has a turn of 100 ms, 20 at a time.", s.Cases(figures.Sale),
			server, label("browsers", clients), spread("seconds until all were served", figures.Sale), spread("places idle, %", figures.Idle),
			median("turns missed", figures.Missed), spread("% of a core", figures.Load), median("most memory, MB", figures.Memory)),
	}
}

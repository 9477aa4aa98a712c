//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
	"github.com/orderly-http/caddy-orderly/bench/internal/load"
	"github.com/orderly-http/caddy-orderly/bench/internal/servers"
)

// A sale: all browsers come within a time, follow their places live, and have a turn
// each, saleInside at a time.
const (
	saleInside = 20
	saleTurn   = 100 * time.Millisecond
	saleDoors  = 10 * time.Second // within which all come
)

var saleQueue = []string{
	fmt.Sprintf("concurrency %d", saleInside), "timeout 2h", "queue_length 20000", "error_code 503", "hold_timeout 1m", "waiting_page",
}

// sale is what the browsers of a sale have seen.
type sale struct {
	missed atomic.Int64 // turns
	failed atomic.Int64
}

func holdSale(ctx context.Context, server *servers.Server, backend *servers.Backend, people int) (figures.Values, error) {
	s := new(sale)
	before, err := server.ProcessorTime()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: people}
	defer transport.CloseIdleConnections()
	begun := time.Now()
	var shoppers sync.WaitGroup
	for i := range people {
		shoppers.Go(func() {
			load.Sleep(ctx, saleDoors*time.Duration(i)/time.Duration(people))
			shopper{newBrowser("http://"+server.Addrs[0]+backend.Path(saleTurn, 0), transport, i), s}.buy(ctx)
		})
	}
	shoppers.Wait()
	took := time.Since(begun)
	after, err := server.ProcessorTime()
	if err != nil {
		return nil, err
	}
	memory, err := server.MostMemory()
	if err != nil {
		return nil, err
	}
	most, err := backend.Most(ctx)
	if err != nil {
		return nil, err
	}
	if most > saleInside {
		return nil, fmt.Errorf("%d were inside at once", most)
	}
	busy := time.Duration(people) * saleTurn / saleInside
	return figures.Values{
		figures.Sale: took.Seconds(), figures.Idle: 100 * (1 - busy.Seconds()/took.Seconds()), figures.Missed: float64(s.missed.Load()),
		figures.Failed: float64(s.failed.Load()), figures.Load: 100 * float64(after-before) / float64(took), figures.Memory: memory,
	}, ctx.Err()
}

// shopper is a browser with JavaScript.
type shopper struct {
	*browser
	*sale
}

// saleTries is how many errors a browser survives.
const saleTries = 20

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

package test

import (
	"strings"
	"testing"
	"time"

	"github.com/orderly-http/caddy-orderly/serializer/internal/testrelay"
)

// relay is a link between an engine and etcd that can be slowed, held and cut.
type relay struct{ *testrelay.Relay }

func hostOf(url string) string { return strings.TrimPrefix(url, "http://") }

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	return &relay{testrelay.Start(t, hostOf(to))}
}

func (r *relay) url() string { return "http://" + r.Addr }

// hold keeps answers back, and part everything, or lets them through again.
func (r *relay) hold(held bool)   { r.Set(func() { r.Deaf = held }) }
func (r *relay) part(parted bool) { r.Set(func() { r.Parted = parted }) }

func (r *relay) slow(delay time.Duration) { r.Set(func() { r.Delay = delay }) }
func (r *relay) cut()                     { r.Cut() }
func (r *relay) lead(to string)           { r.Lead(hostOf(to)) }

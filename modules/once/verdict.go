package once

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/responsebuffer"
	"github.com/orderly-http/caddy-orderly/modules/internal/turncontext"
)

// freeing are the statuses that say that nothing was done: who asks has to log in, wait or come
// again. 503 says so with Retry-After.
var freeing = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
	http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests,
}

// judge decides what became of the request, by the error of the next handlers or else by their
// answer. Whatever is not clear is unknown.
func (p *passage) judge(answer responsebuffer.Answer, err error) state {
	switch failure := p.context.Failure(); {
	case p.context.Revoked() != nil || p.turn.Context().Err() != nil:
		return unknown
	case errors.Is(failure, turncontext.ErrRefused) && !p.isOpen():
		return p.freeIfUnsent()
	case err != nil || failure != nil:
		return p.judgeError(cmp.Or(err, failure))
	}
	frees := slices.Contains(freeing, answer.Status) ||
		answer.Status == http.StatusServiceUnavailable && len(answer.Header["Retry-After"]) > p.retryAfters ||
		answer.Status >= 500 && p.handler.FreeErrors
	// A proxy, or an error route among the next handlers, may have written the status in place of an
	// answer that did not come. 499 comes from no upstream.
	replaced := answer.Status == requestbody.StatusClientClosed || p.isOpen() && (frees || answer.Status >= http.StatusBadGateway)
	switch {
	case answer.Broken || replaced:
		return unknown
	case frees:
		return free
	case !answer.Whole:
		return notKept
	}
	return answered
}

func (p *passage) judgeError(err error) state {
	failure, isFailure := errors.AsType[caddyhttp.HandlerError](err)
	_, dialed := errors.AsType[reverseproxy.DialError](err)
	switch {
	case p.sent.isOpen() || errors.Is(err, context.Canceled):
		return unknown
	case dialed || p.sent.isHandshake(err),
		isFailure && failure.StatusCode == http.StatusServiceUnavailable && strings.Contains(err.Error(), "no upstreams available"):
		return p.freeIfUnsent()
	case isFailure && slices.Contains(freeing, failure.StatusCode) && !p.isOpen():
		return free
	}
	return unknown
}

// isOpen reports whether an upstream may have the request and has not answered. Attempts that are not
// net/http's, such as FastCGI's, show only that a proxy has chosen an upstream.
func (p *passage) isOpen() bool {
	_, chosen := p.repl.Get("http.reverse_proxy.upstream.address")
	return p.sent.isOpen() || chosen && p.sent.before.Load() == nil && p.latency() == nil
}

// mayHaveActed reports whether an upstream may have got the request, by what is known of attempts or
// else by a proxy's error.
func (p *passage) mayHaveActed(err error) bool {
	failure, _ := errors.AsType[caddyhttp.HandlerError](err)
	switch failure.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout, requestbody.StatusClientClosed:
		return true
	}
	return p.sent.sent.Load() || p.latency() != nil
}

// freeIfUnsent judges a request that went no further, since a queue refused it or no upstream was
// there. Another proxy may have sent it before, or an earlier attempt. Of net/http, each attempt is
// known. Of others, such as FastCGI, one that got an answer is, and several count as sent.
func (p *passage) freeIfUnsent() state {
	retries, _ := p.repl.Get("http.reverse_proxy.retries")
	n, _ := retries.(int)
	if p.sent.sent.Load() || p.latency() != nil || n > 0 && p.sent.before.Load() == nil {
		return unknown
	}
	return free
}

const latencyPlaceholder = "http.reverse_proxy.upstream.latency"

// latency is that of the latest answer of an upstream, as Caddy's proxy notes it, or nil.
func (p *passage) latency() any {
	latency, _ := p.repl.Get(latencyPlaceholder)
	return latency
}

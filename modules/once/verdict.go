package once

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/orderly-http/caddy-orderly/modules/internal/heldturns"
	"github.com/orderly-http/caddy-orderly/modules/internal/requestbody"
	"github.com/orderly-http/caddy-orderly/modules/internal/responsebuffer"
	"github.com/orderly-http/caddy-orderly/serializer"
)

// verdict is what becomes of a key when the first request has ended.
type verdict string

const (
	keep    verdict = "answered" // the answer is repeated
	noKeep  verdict = "not_kept" // there is one, but it cannot be repeated
	free    verdict = "freed"    // nothing has happened; the next request runs
	unknown verdict = "unknown"  // the upstream may have acted
)

// freeing are the statuses that say that nothing was done: who asks has to log in, wait or come
// again. 503 says so with Retry-After.
var freeing = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
	http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests,
}

// judge decides by the answer of the next handlers, or by their error. Whatever is not clear is
// unknown.
func (p *passage) judge(err error) (verdict, responsebuffer.Answer) {
	answer, whole, broken := p.response.Answer()
	if err == nil {
		err = p.handledError()
	}
	switch {
	case p.context.Revoked() != nil || p.turn.Context().Err() != nil:
		return unknown, answer
	case err != nil:
		return p.judgeError(err), answer
	case broken:
		return unknown, answer
	case heldturns.Refused(p.vars, answer.Status):
		return free, answer
	case p.isCancelled(answer.Status):
		return unknown, answer
	case slices.Contains(freeing, answer.Status),
		answer.Status == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "",
		answer.Status >= 500 && p.handler.FreeErrors:
		return free, answer
	case !whole:
		return noKeep, answer
	}
	return keep, answer
}

// isCancelled reports whether a proxy wrote the status in place of an answer that it did not get.
// 499 comes from no upstream.
func (p *passage) isCancelled(status int) bool {
	return status == requestbody.StatusClientClosed ||
		p.sent.open.Load() && (status == http.StatusBadGateway || status == http.StatusGatewayTimeout)
}

// handledError is the error that an error route among the next handlers has answered, or an event
// stream of serialize, or nil.
func (p *passage) handledError() error {
	if p.inErrorRoute {
		return nil
	}
	handled, _ := p.repl.Get("http.error")
	err, _ := handled.(error)
	return err
}

func (p *passage) judgeError(err error) verdict {
	if _, refused := errors.AsType[*serializer.Refused](err); refused {
		return free
	}
	failure, isFailure := errors.AsType[caddyhttp.HandlerError](err)
	switch _, dialed := errors.AsType[reverseproxy.DialError](err); {
	case p.sent.open.Load() || errors.Is(err, context.Canceled):
		return unknown
	case dialed || isFailure && failure.StatusCode == http.StatusServiceUnavailable && strings.Contains(err.Error(), "no upstreams available"):
		if p.mayHaveSent() {
			return unknown
		}
		return free
	case isFailure && (slices.Contains(freeing, failure.StatusCode) || heldturns.Refused(p.vars, failure.StatusCode)):
		return free
	}
	return unknown
}

// mayHaveSent reports whether one of a proxy's attempts may have sent the request. Only those by
// net/http are known; others count if there were several.
func (p *passage) mayHaveSent() bool {
	retries, _ := p.repl.Get("http.reverse_proxy.retries")
	n, _ := retries.(int)
	return p.sent.sent.Load() || n > 0 && !p.sent.wanted.Load()
}

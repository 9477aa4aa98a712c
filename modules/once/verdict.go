package once

import (
	"cmp"
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

// freeing are the statuses that say that nothing was done: the client has to log in, wait or come
// again. 503 says so with Retry-After, and so does a once that is the upstream.
var freeing = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
	http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusTooManyRequests,
}

// judge decides what a repetition gets, by the error of the next handlers or else by their answer.
// Whatever is not clear is unknown.
func (p *passage) judge(answer responsebuffer.Answer, err error) outcome {
	sent, open := p.sent.reached()
	err = cmp.Or(err, p.context.Failure())
	status, frees := answer.Status, false
	if err != nil {
		failure, _ := errors.AsType[caddyhttp.HandlerError](err)
		status = failure.StatusCode
	} else {
		frees = p.handler.FreeErrors && status >= 500 ||
			answer.Header.Get("Retry-After") != "" && (status == http.StatusServiceUnavailable || answer.Header.Get(reasonField) != "")
	}
	frees = frees || slices.Contains(freeing, status)
	upstream, answered := p.repl.Get(statusPlaceholder)
	// An upstream may have acted before another one, or a handler, gave the status. Nothing notes the status of
	// a proxy that is not Caddy's.
	doubt := answered && upstream != status || sent && !answered || p.sent.earlier.Load()
	switch {
	case p.context.Revoked() != nil || p.turn.Context().Err() != nil:
		return unknown
	case err != nil && p.wentNoFurther(err, status) && !sent:
		return freed
	case err != nil && (!frees || doubt || errors.Is(p.context.Failure(), turncontext.ErrRefused)), answer.Broken:
		return unknown
	// A proxy, or an error route among the next handlers, may have written the status in place of an
	// answer that did not come. 499 comes from no upstream.
	case status == requestbody.StatusClientClosed, open && (frees || status >= http.StatusBadGateway):
		return unknown
	case frees && !doubt:
		return freed
	case !answer.Whole:
		return notKept
	}
	return repeated
}

// wentNoFurther reports whether the request has ended by an error since a queue refused it, or no
// upstream was there. Another proxy may have sent it before, or an earlier attempt.
func (p *passage) wentNoFurther(err error, status int) bool {
	_, dialed := errors.AsType[reverseproxy.DialError](err)
	return dialed || p.sent.wroteNothing() && status >= http.StatusBadGateway || errors.Is(p.context.Failure(), turncontext.ErrRefused) ||
		status == http.StatusServiceUnavailable && strings.Contains(err.Error(), "no upstreams available") ||
		status == http.StatusBadGateway && strings.Contains(err.Error(), "making dial info")
}

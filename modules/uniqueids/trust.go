package uniqueids

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/orderly-http/caddy-orderly/uniqueid"
)

// adopt adopts the caller's ID for the handler that names the request, if the caller is
// trusted. A second handler adopts nothing. Each removes an ID that it does not trust from
// the request, so that the upstream does not see it. IDs of the request itself, which were
// put into the header on the way, stay.
func (ids *requestIDs) adopt(r *http.Request, handler *Handler) {
	if values, ok := r.Header[handler.Trust]; ok {
		trusted, _ := caddyhttp.GetVar(ids.ctx, caddyhttp.TrustedProxyVarKey).(bool)
		err := errUntrusted
		if trusted {
			err = check(handler.Trust, values)
		}
		switch {
		case err == nil && handler == ids.handler:
			ids.adoptValue(handler.Trust, values[0])
		case err != nil && (len(values) != 1 || !ids.isOwn(values[0])):
			r.Header.Del(handler.Trust)
			handler.logDropped(r, trusted, err)
		}
	}
	if handler.Trust == traceparentField {
		ids.dropOldState(r.Header)
	}
}

// logDropped logs why a caller's ID was dropped. That clients outside send one is no fault.
func (u *Handler) logDropped(r *http.Request, trusted bool, reason error) {
	peer, level := r.RemoteAddr, zap.InfoLevel
	if trusted {
		level = zap.WarnLevel
	}
	u.dropped.Do(trusted, func(count int) {
		u.logger.Log(level, "dropped the caller's ID",
			zap.String("header", u.Trust), zap.String("reason", reason.Error()), zap.String("peer", peer), zap.Int("count", count))
	})
}

var errUntrusted = errors.New("the peer is none of the server's trusted_proxies")

const (
	longestID    = 128
	idCharacters = "._@:=+/-" // and letters and digits
)

// check says why the values of a trusted header field cannot be adopted, if so.
func check(header string, values []string) error {
	if len(values) != 1 {
		return fmt.Errorf("the field comes %d times", len(values))
	}
	value := values[0]
	if header == traceparentField {
		_, err := uniqueid.ParseTraceContext(value)
		return err
	}
	for i, c := range value {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(idCharacters, c)) {
			return fmt.Errorf("character %q at offset %d is none of [A-Za-z0-9%s]", c, i, idCharacters)
		}
	}
	if len(value) == 0 || len(value) > longestID {
		return fmt.Errorf("it has %d characters; expected 1 to %d", len(value), longestID)
	}
	return nil
}

// isOwn reports whether text is one of the request's IDs that was put into the header on
// the way.
func (ids *requestIDs) isOwn(text string) bool {
	if span := spanOf(ids.ctx, ids.header); !span.IsZero() && text == span.String() {
		return true
	}
	return text != "" && slices.ContainsFunc(ids.made, func(m madeID) bool { return m.text == text })
}

// adoptValue adopts the value of the trusted header field. A txid of about now or a UUIDv7
// becomes the ID in all notations. IDs of other kinds can look like a txid, but then of another
// time.
func (ids *requestIDs) adoptValue(header, value string) {
	if header == traceparentField {
		ids.trace.received, _ = uniqueid.ParseTraceContext(value)
		return
	}
	ids.txid, ids.adopted = value, header
	if txid, err := uniqueid.ParseTXID(value); err == nil && time.Since(txid.Time()).Abs() <= 24*time.Hour {
		ids.uuid, ids.trace.adopted = txid.UUIDv7(rand.Uint32()), true
	}
	if uuid, err := uniqueid.ParseUUIDv7(value); err == nil {
		ids.uuid, ids.trace.adopted = uuid, true
	}
}

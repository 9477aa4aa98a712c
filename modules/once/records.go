package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// record is what the storage has of a key. A key without a record is free.
type record struct {
	State   state
	Since   time.Time   // it is kept: when the first request ended, or began if it has not
	Address []byte      // SHA-256 of that request's method and address
	Sum     []byte      // SHA-256 of its body, if bodies are compared
	Status  int         // of the answer
	Header  http.Header // of the answer, those fields that are repeated
	Body    []byte      `json:"-"` // of the answer
}

// state is what became of a first request.
type state string

const (
	began    state = "began" // it runs, or nobody knows what became of it
	answered state = "answered"
	notKept  state = "not_kept" // answered, but the answer is not in the record
	unknown  state = "unknown"  // the upstream may have acted
	free     state = "free"     // nothing has happened; the record is removed, and the next request runs
)

var errDamaged = errors.New("the record is damaged")

// seal encrypts a record: its JSON, followed by the body. A key's records cannot be exchanged for
// those of another one.
func (k *key) seal(r *record) ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing a record: %w", err)
	}
	return k.sealer.Seal(nil, nil, append(head, r.Body...), nil), nil
}

// open decrypts a record. GCM's tag is its checksum.
func (k *key) open(sealed []byte) (*record, error) {
	plain, err := k.sealer.Open(nil, nil, sealed, nil)
	r, head := new(record), json.NewDecoder(bytes.NewReader(plain))
	if err != nil || head.Decode(r) != nil {
		return nil, errDamaged
	}
	r.Body = plain[head.InputOffset():]
	return r, nil
}

// sameRequest reports whether a repetition asks for the same as the first request.
func (r *record) sameRequest(repetition *record) bool {
	compared := len(r.Sum) > 0 && len(repetition.Sum) > 0
	return bytes.Equal(r.Address, repetition.Address) && (!compared || bytes.Equal(r.Sum, repetition.Sum))
}

// records are those of all keys, in Caddy's storage. There is a folder for each day (UTC) from which
// records are kept, so that expired ones are removed by the names of their folders. A request that
// runs over midnight has two: the newer one counts. Storage has neither conditions nor locks that
// are cheap: the queues keep two from writing one record.
type records struct {
	storage certmagic.Storage
	log     *zap.Logger
}

// sweeping has the contexts of configurations whose expired records are being removed.
var sweeping sync.Map

// openRecords returns the records of a configuration.
func openRecords(ctx caddy.Context) *records {
	r := &records{ctx.Storage(), ctx.Logger()}
	if _, others := sweeping.LoadOrStore(ctx.Done(), true); !others {
		go r.sweepHourly(ctx)
	}
	return r
}

const (
	day = 24 * time.Hour

	// clockSkew is how far the clock of another machine may be ahead or behind.
	clockSkew = 10 * time.Minute

	// patience is how long the storage may take for a record.
	patience = 10 * time.Second
)

// folder is that of the records that are kept from the day of a time.
func folder(t time.Time) string { return "orderly/once/" + t.UTC().Format(time.DateOnly) }

// load finds the record of a key that is not older than keep now. It returns nil if there is none.
func (r *records) load(ctx context.Context, k *key, keep time.Duration, now time.Time) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := folder(now.Add(-keep - clockSkew))
	for t, name := now.Add(clockSkew), ""; name != last; t = t.Add(-day) {
		name = folder(t)
		sealed, err := r.storage.Load(ctx, name+"/"+k.hash)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("loading a record from the storage: %w", err)
		}
		found, err := k.open(sealed)
		if err != nil || now.Sub(found.Since) > keep {
			return nil, err
		}
		return found, nil
	}
	return nil, nil
}

// store writes the record of a key, or removes that of one that is free now.
func (r *records) store(k *key, what *record) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := folder(what.Since) + "/" + k.hash
	if what.State == free {
		if err := r.storage.Delete(ctx, name); err != nil {
			return fmt.Errorf("removing a record: %w", err)
		}
		return nil
	}
	sealed, err := k.seal(what)
	if err != nil {
		return err
	}
	if err := r.storage.Store(ctx, name, sealed); err != nil {
		return fmt.Errorf("storing a record: %w", err)
	}
	stored.Add(float64(len(sealed)))
	return nil
}

// Expired records are removed soon after a start and then hourly. Caddy may not have run for some
// time before.
const (
	firstSweep   = time.Minute
	sweepEvery   = time.Hour
	sweptDays    = 60
	sweepTimeout = 10 * time.Minute
)

func (r *records) sweepHourly(ctx context.Context) {
	defer sweeping.Delete(ctx.Done())
	for wait := firstSweep; ; wait = sweepEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			r.sweep(ctx, time.Now())
		}
	}
}

// sweep removes the folders of which nothing is repeated any more.
func (r *records) sweep(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	last := now.Add(-maxKeep - day - clockSkew)
	for i := range sweptDays {
		name := folder(last.Add(-time.Duration(i) * day))
		if err := r.removeFolder(ctx, name); err != nil && ctx.Err() == nil {
			r.log.Error("removing expired records failed", zap.String("folder", name), zap.Error(err))
			return
		}
	}
}

// removeFolder removes a folder. Storage should do that in one step, but not every module does.
func (r *records) removeFolder(ctx context.Context, name string) error {
	if err := r.storage.Delete(ctx, name); err != nil {
		return err
	}
	left, err := r.storage.List(ctx, name, true)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, key := range left {
		err = errors.Join(err, r.storage.Delete(ctx, key))
	}
	return err
}

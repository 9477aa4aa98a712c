package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// record is what the storage has of a key. A key without a record is free.
type record struct {
	Outcome outcome     // of repetitions: repeated, not_kept or unknown
	Since   time.Time   // it is kept: when the first request ended, or began if it has not
	Address []byte      // SHA-256 of that request's method and address
	Sum     []byte      // SHA-256 of its body, if bodies are compared
	Status  int         // of the answer
	Header  http.Header // of the answer, those fields that are repeated
	Body    []byte      `json:"-"` // of the answer
}

// seal encrypts a record: its JSON, followed by the body. A key's records cannot be exchanged for
// those of another one.
func (k *key) seal(r *record) []byte {
	head, _ := json.Marshal(r) // values of these types never fail
	return k.sealer.Seal(nil, nil, append(head, r.Body...), nil)
}

// open decrypts a record. GCM's tag is its checksum. The outcomes tell versions apart.
func (k *key) open(sealed []byte) (*record, error) {
	plain, err := k.sealer.Open(nil, nil, sealed, nil)
	r, head := new(record), json.NewDecoder(bytes.NewReader(plain))
	if err != nil || head.Decode(r) != nil || r.Outcome == "" {
		return nil, fmt.Errorf("%w: the record is damaged", unknown)
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
	oldest := folder(now.Add(-keep - clockSkew))
	for t := now.Add(clockSkew); folder(t) >= oldest; t = t.Add(-day) {
		sealed, err := r.storage.Load(ctx, folder(t)+"/"+k.hash)
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

// store writes the record of a key, or removes that of one that was freed.
func (r *records) store(k *key, what *record) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	name := folder(what.Since) + "/" + k.hash
	if what.Outcome == freed {
		err = r.storage.Delete(ctx, name)
	} else {
		sealed := k.seal(what)
		if err = r.storage.Store(ctx, name, sealed); err == nil {
			stored.Add(float64(len(sealed)))
		}
	}
	if err != nil {
		return fmt.Errorf("changing a record in the storage: %w", err)
	}
	return nil
}

// sweepHourly removes expired records soon after a start and then hourly.
func (r *records) sweepHourly(ctx context.Context) {
	for wait := time.Minute; ctx.Err() == nil; wait = time.Hour {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
			r.sweep(ctx, time.Now())
		}
	}
}

// sweptDays is of how many days folders are removed: Caddy may not have run for some time.
const sweptDays = 60

// sweep removes the folders of which nothing is repeated any more. Storage should remove a folder in
// one step, but not every module does.
func (r *records) sweep(ctx context.Context, now time.Time) {
	last := now.Add(-maxKeep - day - clockSkew)
	for i := range sweptDays {
		name := folder(last.Add(-time.Duration(i) * day))
		err := r.storage.Delete(ctx, name)
		left, listErr := r.storage.List(ctx, name, true)
		if !errors.Is(listErr, fs.ErrNotExist) {
			err = errors.Join(err, listErr)
		}
		for _, key := range left {
			err = errors.Join(err, r.storage.Delete(ctx, key))
		}
		if err != nil && ctx.Err() == nil {
			r.log.Error("removing expired records failed", zap.String("folder", name), zap.Error(err))
			return
		}
	}
}

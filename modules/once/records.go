package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// record is what the storage has of a key. A key without a record is free.
type record struct {
	Outcome outcome   // of repetitions: repeated, not_kept or unknown
	Since   time.Time // it is kept: when the first request ended, or began if it has not
	Address []byte    // SHA-256 of that request's method and address
	Sum     []byte    // SHA-256 of its body, if bodies are compared
	Status  int       // of the answer
	Fields  []byte    // of the answer, those that are repeated, as HTTP/1 has them; not all are UTF-8
	Body    []byte    `json:"-"` // of the answer
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

// busy has what the storage does at the moment. A file's call that hangs needs a thread of the system, and
// Go ends the process that has 10,000.
var busy = make(chan struct{}, 1000)

// patiently lets the storage do something. Files and some other storage do not know contexts: what they do
// then may end later, which ended tells, or never.
func patiently(ctx context.Context, do func(context.Context) error) (ended <-chan struct{}, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done, end := make(chan error, 1), make(chan struct{})
	select {
	case busy <- struct{}{}:
	case <-ctx.Done():
		close(end)
		return end, ctx.Err()
	}
	go func() {
		defer close(end)
		defer func() {
			<-busy
			if thrown := recover(); thrown != nil {
				done <- fmt.Errorf("the storage panicked: %v", thrown)
			}
		}()
		done <- do(ctx)
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	return end, err
}

// load finds the record of a key that is not older than keep now. It returns nil if there is none.
func (r *records) load(ctx context.Context, k *key, keep time.Duration, now time.Time) (*record, error) {
	var sealed []byte
	_, err := patiently(ctx, func(ctx context.Context) (err error) {
		sealed, err = r.newest(ctx, k.hash, now.Add(clockSkew), now.Add(-keep-clockSkew))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found *record
	if err == nil {
		found, err = k.open(sealed)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("loading a record from the storage: %w", err)
	case now.Sub(found.Since) > keep:
		return nil, nil
	}
	return found, nil
}

// newest looks into the folder of a day, and of each day before it until the oldest one.
func (r *records) newest(ctx context.Context, hash string, from, oldest time.Time) ([]byte, error) {
	for last := folder(oldest); ; from = from.Add(-day) {
		name := folder(from)
		if name < last {
			return nil, fs.ErrNotExist
		}
		if sealed, err := r.storage.Load(ctx, name+"/"+hash); !errors.Is(err, fs.ErrNotExist) {
			return sealed, err
		}
	}
}

// store writes the record of a key, or removes that of one that was freed. After an error, that may
// happen until ended is closed.
func (r *records) store(k *key, what *record) (ended <-chan struct{}, err error) {
	name := folder(what.Since) + "/" + k.hash
	change := func(ctx context.Context) error { return r.storage.Delete(ctx, name) }
	if what.Outcome != freed {
		sealed := k.seal(what)
		change = func(ctx context.Context) error {
			err := r.storage.Store(ctx, name, sealed)
			if err == nil {
				stored.Add(float64(len(sealed)))
			}
			return err
		}
	}
	if ended, err = patiently(context.Background(), change); err != nil {
		err = fmt.Errorf("changing a record in the storage: %w", err)
	}
	return ended, err
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

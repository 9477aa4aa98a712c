package once

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// records are those of all keys, in Caddy's storage. There is a folder for each day (UTC) on which
// requests began, so that expired records are removed by the names of their folders. Storage
// has neither conditions nor locks that are cheap: the queues keep two from writing one record.
type records struct {
	storage certmagic.Storage
	log     *zap.Logger
	ctx     context.Context // ends with the last handler of the configuration
	cancel  context.CancelFunc
}

// used are the records of each configuration, which its handlers share.
var used = caddy.NewUsagePool()

// openRecords returns the records of a configuration.
func openRecords(ctx caddy.Context) (*records, error) {
	value, _, err := used.LoadOrNew(ctx.Done(), func() (caddy.Destructor, error) {
		r := &records{storage: ctx.Storage(), log: ctx.Logger()}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		go r.sweepHourly()
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("opening the storage of records: %w", err)
	}
	return value.(*records), nil
}

// Destruct implements [caddy.Destructor].
func (r *records) Destruct() error {
	r.cancel()
	return nil
}

// inFiles reports whether the records are files.
func (r *records) inFiles() bool {
	_, files := r.storage.(*certmagic.FileStorage)
	return files
}

const (
	day     = 24 * time.Hour
	maxKeep = 7 * day

	// clockSkew is how far the clock of another machine may be ahead or behind.
	clockSkew = 10 * time.Minute
)

// folder is that of the requests that began on the day of a time.
func folder(t time.Time) string { return "orderly/once/" + t.UTC().Format(time.DateOnly) }

// load finds the record of a key that is not older than keep now. It returns nil if there is none.
func (r *records) load(ctx context.Context, k *key, keep time.Duration, now time.Time) (*record, error) {
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
		if err != nil {
			return &record{damaged: true}, nil //nolint:nilerr // it is an outcome of its own
		}
		if found.isOver(keep, now) {
			return nil, nil
		}
		return found, nil
	}
	return nil, nil
}

// store writes the record of a key.
func (r *records) store(ctx context.Context, k *key, what *record) error {
	sealed, err := k.seal(what)
	if err != nil {
		return err
	}
	if err := r.storage.Store(ctx, folder(what.Began)+"/"+k.hash, sealed); err != nil {
		return fmt.Errorf("storing a record: %w", err)
	}
	stored.Add(float64(len(sealed)))
	return nil
}

// remove frees a key.
func (r *records) remove(ctx context.Context, k *key, what *record) error {
	if err := r.storage.Delete(ctx, folder(what.Began)+"/"+k.hash); err != nil {
		return fmt.Errorf("removing a record: %w", err)
	}
	return nil
}

// Expired records are removed soon after a start and then hourly. The first time looks back
// further: Caddy may not have run for some time.
const (
	firstSweep   = time.Minute
	sweepEvery   = time.Hour
	firstDays    = 60
	daysLater    = 2
	sweepTimeout = 10 * time.Minute
)

func (r *records) sweepHourly() {
	for wait, days := firstSweep, firstDays; ; wait, days = sweepEvery, daysLater {
		select {
		case <-r.ctx.Done():
			return
		case <-time.After(wait):
			r.sweep(time.Now(), days)
		}
	}
}

// sweep removes the folders of some days, of which nothing is repeated any more.
func (r *records) sweep(now time.Time, days int) {
	ctx, cancel := context.WithTimeout(r.ctx, sweepTimeout)
	defer cancel()
	for t := now.Add(-maxKeep - day - clockSkew); days > 0; t, days = t.Add(-day), days-1 {
		if err := r.removeFolder(ctx, folder(t)); err != nil && ctx.Err() == nil {
			r.log.Error("removing expired records failed", zap.String("folder", folder(t)), zap.Error(err))
			return
		}
	}
}

// removeFolder removes a folder. Storage should do that in one step, but not every module does.
func (r *records) removeFolder(ctx context.Context, name string) error {
	if err := r.storage.Delete(ctx, name); err != nil || r.inFiles() {
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

// Interface guards
var _ caddy.Destructor = (*records)(nil)

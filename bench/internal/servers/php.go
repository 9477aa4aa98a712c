package servers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/orderly-http/caddy-orderly/bench/internal/figures"
)

// PHP is php-fpm with a script that works for as long as it is told, writes a page of a
// size, and notes when it began and when it ended.
type PHP struct {
	*Server
	Socket string // where it listens; over TCP, its answers wait for delayed acknowledgements
}

// The script uses the processor while it works, as applications do. It looks at the
// clock that all processes share.
const (
	phpScript = "work.php"
	phpTurns  = "turns"
)

// StartPHP runs php-fpm.
func StartPHP(ctx context.Context, home string) (*PHP, error) {
	s, err := Program{Name: "php-fpm", Socket: true, Config: "php-fpm.conf", Args: []string{"-F", "-y", "FILE"}}.Start(ctx, home)
	if err != nil {
		return nil, err
	}
	p := &PHP{s, s.Addrs[0]}
	script, err := configs.ReadFile("configs/" + phpScript)
	err = errors.Join(err,
		os.WriteFile(filepath.Join(p.Dir, phpScript), script, 0o644),
		os.WriteFile(filepath.Join(p.Dir, phpTurns), nil, 0o600),
		os.Chmod(filepath.Join(p.Dir, phpTurns), 0o666)) // it works as another user
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("writing the script: %w", err)
	}
	return p, nil
}

// Path is the request path of a script that takes so long, and answers with so many
// bytes.
func (p *PHP) Path(hold time.Duration, size int) string {
	return fmt.Sprintf("/%s?ns=%d&bytes=%d", phpScript, hold, size)
}

// Settle waits until nobody comes any more.
func (p *PHP) Settle(ctx context.Context) error {
	for n := -1; ctx.Err() == nil; {
		turns, err := p.turns()
		if err != nil || len(turns) == n {
			return errors.Join(err, os.Truncate(filepath.Join(p.Dir, phpTurns), 0))
		}
		n = len(turns)
		time.Sleep(settleTime)
	}
	return ctx.Err()
}

// turn is one run of the script, in nanoseconds.
type turn struct{ Begin, End int64 }

func (p *PHP) turns() ([]turn, error) {
	text, err := os.ReadFile(filepath.Join(p.Dir, phpTurns))
	if err != nil {
		return nil, fmt.Errorf("reading what the script noted: %w", err)
	}
	turns := make([]turn, len(text)/16)
	if err := binary.Read(bytes.NewReader(text), binary.LittleEndian, turns); err != nil {
		return nil, fmt.Errorf("reading what the script noted: %w", err)
	}
	return turns, nil
}

// Observe returns how many were inside at once since Settle, and how long nobody was.
func (p *PHP) Observe(context.Context) (figures.Values, error) {
	turns, err := p.turns()
	return idleness(turns), err
}

func idleness(turns []turn) figures.Values {
	if len(turns) < 2 {
		return nil
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.Begin, b.Begin) })
	inside := 1
	var gaps []time.Duration
	var idle time.Duration
	last := turns[0].End
	for _, t := range turns[1:] {
		if gap := time.Duration(t.Begin - last); gap >= 0 {
			gaps = append(gaps, gap)
			idle += gap
		} else {
			inside = 2 // or more
		}
		last = max(last, t.End)
	}
	slices.Sort(gaps)
	values := figures.Values{
		figures.Inside: float64(inside),
		figures.Idle:   100 * float64(idle) / float64(last-turns[0].Begin),
	}
	if len(gaps) > 0 {
		values[figures.Gap] = figures.Microseconds(figures.Quantile(gaps, 0.5))
		values[figures.GapLate] = figures.Microseconds(figures.Quantile(gaps, 0.99))
	}
	return values
}

package results

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"
)

var header = []string{"subject", "processes", "clients", "hold_us", "waiting", "run", "metric", "value", "unit"}

// Write writes the set as CSV.
func (s Set) Write(w io.Writer) error {
	out := csv.NewWriter(w)
	rows := [][]string{header}
	for _, r := range s {
		rows = append(rows, []string{
			r.Subject, number(r.Processes), number(r.Clients), number(int(r.Hold.Microseconds())), number(r.Waiting),
			strconv.Itoa(r.Run), r.Metric, strconv.FormatFloat(r.Value, 'g', 7, 64), r.Unit,
		})
	}
	return out.WriteAll(rows)
}

// number leaves the field of a condition that does not apply empty.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Read reads what Write wrote.
func Read(r io.Reader) (Set, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("the first line is not %q", header)
	}
	set := make(Set, 0, len(rows)-1)
	for i, row := range rows[1:] {
		record, err := parse(row)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		set = append(set, record)
	}
	return set, nil
}

func parse(row []string) (r Record, err error) {
	var hold int
	r.Subject, r.Metric, r.Unit = row[0], row[6], row[8]
	for _, field := range []struct {
		text string
		to   *int
	}{{row[1], &r.Processes}, {row[2], &r.Clients}, {row[3], &hold}, {row[4], &r.Waiting}, {row[5], &r.Run}} {
		if field.text == "" {
			continue
		}
		if *field.to, err = strconv.Atoi(field.text); err != nil {
			return Record{}, err
		}
	}
	r.Hold = time.Duration(hold) * time.Microsecond
	r.Value, err = strconv.ParseFloat(row[7], 64)
	return r, err
}

// WriteFile writes the set to a file.
func (s Set) WriteFile(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
	}()
	if err := s.Write(f); err != nil {
		return fmt.Errorf("writing results to %s: %w", path, err)
	}
	return nil
}

// ReadFile reads a set from a file. The error is fs.ErrNotExist if there is
// none.
func ReadFile(path string) (Set, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading results: %w", err)
	}
	defer f.Close()
	set, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("reading results from %s: %w", path, err)
	}
	return set, nil
}

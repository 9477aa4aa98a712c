package figures

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

var header = []string{
	"suite", "group", "contestant", "file_system", "setting", "processes", "clients", "hold_us", "waiting", "bytes", "run", "metric", "value",
}

// fields are the parts of a row in the order of the header.
func (r *Row) fields() []any {
	return []any{
		&r.Suite, &r.Group, &r.Contestant, &r.FileSystem, &r.Setting, &r.Processes, &r.Clients, &r.Hold, &r.Waiting, &r.Bytes,
		&r.Run, (*string)(&r.Metric), &r.Value,
	}
}

// WriteFile writes the set to a file. Fields that do not apply are empty.
func (s Set) WriteFile(path string) error {
	rows := [][]string{header}
	for _, r := range s {
		var row []string
		for _, field := range r.fields() {
			row = append(row, format(field))
		}
		rows = append(rows, row)
	}
	return WriteRows(path, rows)
}

func format(field any) string {
	number := 0
	switch field := field.(type) {
	case *string:
		return *field
	case *float64:
		return strconv.FormatFloat(*field, 'g', 7, 64)
	case *time.Duration:
		number = int(field.Microseconds())
	case *int:
		number = *field
	}
	if number == 0 {
		return ""
	}
	return strconv.Itoa(number)
}

func parse(text string, field any) (err error) {
	switch field := field.(type) {
	case *string:
		*field = text
	case *float64:
		*field, err = strconv.ParseFloat(text, 64)
	case *time.Duration:
		*field, err = time.ParseDuration(cmp.Or(text, "0") + "us")
	case *int:
		*field, err = strconv.Atoi(cmp.Or(text, "0"))
	}
	return err
}

// ReadFile reads a set from a file. Where there is none, the error is
// fs.ErrNotExist.
func ReadFile(path string) (Set, error) {
	rows, err := ReadRows(path)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], header) {
		return nil, fmt.Errorf("reading %s: the first line is not %q", path, header)
	}
	set := make(Set, len(rows)-1)
	for i, row := range rows[1:] {
		for j, field := range set[i].fields() {
			if err := parse(row[j], field); err != nil {
				return nil, fmt.Errorf("reading %s: line %d, %s: %w", path, i+2, header[j], err)
			}
		}
	}
	return set, nil
}

// WriteRows writes a file of rows as CSV.
func WriteRows(path string, rows [][]string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing figures: %w", err)
	}
	if err := errors.Join(csv.NewWriter(f).WriteAll(rows), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// ReadRows reads what [WriteRows] wrote. All rows have as many fields as the first.
func ReadRows(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading figures: %w", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return rows, nil
}

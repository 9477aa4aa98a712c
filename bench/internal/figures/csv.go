package figures

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jszwec/csvutil"
)

// Numbers have seven digits that count, and durations, in microseconds, may be empty.
var marshalers = csvutil.NewMarshalers(
	csvutil.MarshalFunc(func(v float64) ([]byte, error) { return strconv.AppendFloat(nil, v, 'g', 7, 64), nil }),
	csvutil.MarshalFunc(func(d time.Duration) ([]byte, error) {
		if d == 0 {
			return nil, nil
		}
		return strconv.AppendInt(nil, d.Microseconds(), 10), nil
	}))

var unmarshalers = csvutil.UnmarshalFunc(func(text []byte, d *time.Duration) (err error) {
	*d, err = time.ParseDuration(cmp.Or(string(text), "0") + "us")
	return err
})

// Write writes rows to a CSV file. Fields that do not apply are empty.
func Write[Row any](path string, rows []Row) error {
	var text bytes.Buffer
	lines := csv.NewWriter(&text)
	encoder := csvutil.NewEncoder(lines)
	encoder.WithMarshalers(marshalers)
	if err := encoder.Encode(rows); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	lines.Flush()
	return os.WriteFile(path, text.Bytes(), 0o644)
}

// Read reads what [Write] wrote. Where there is no file, the error is fs.ErrNotExist.
func Read[Row any](path string) (rows []Row, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder, err := csvutil.NewDecoder(csv.NewReader(bytes.NewReader(text)))
	if err == nil {
		decoder.DisallowMissingColumns = true
		decoder.WithUnmarshalers(unmarshalers)
		err = decoder.Decode(&rows)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return rows, nil
}

package once

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// record is what the storage has of a key. A key without a record is free.
type record struct {
	State   state
	Began   time.Time   // when the first request did
	Ended   time.Time   `json:",omitzero"` // when it did; zero while it runs, or after a crash
	Address []byte      // SHA-256 of its method and address
	Sum     []byte      // SHA-256 of its body, if bodies are compared
	Status  int         // of the answer
	Header  http.Header // of the answer, those fields that are repeated
	Body    []byte      `json:"-"` // of the answer
	damaged bool
}

type state string

const (
	began    state = "began" // the first request runs, or nobody knows what became of it
	answered state = "answered"
	notKept  state = "not_kept" // answered, but the answer is not in the record
)

// recordVersion is the first byte of a record.
const recordVersion = 1

var errDamaged = errors.New("the record is damaged")

// seal encrypts a record. A key's records cannot be exchanged for those of another one.
func (k *key) seal(r *record) ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing a record: %w", err)
	}
	plain := binary.AppendUvarint(make([]byte, 0, len(head)+len(r.Body)+binary.MaxVarintLen64), uint64(len(head)))
	plain = append(append(plain, head...), r.Body...)
	return k.sealer.Seal([]byte{recordVersion}, nil, plain, []byte{recordVersion}), nil
}

// open decrypts a record. GCM's tag is its checksum.
func (k *key) open(sealed []byte) (*record, error) {
	if len(sealed) == 0 || sealed[0] != recordVersion {
		return nil, errDamaged
	}
	plain, err := k.sealer.Open(nil, nil, sealed[1:], sealed[:1])
	if err != nil {
		return nil, errDamaged
	}
	length, n := binary.Uvarint(plain)
	if n <= 0 || length > uint64(len(plain)-n) {
		return nil, errDamaged
	}
	r := new(record)
	if err := json.Unmarshal(plain[n:n+int(length)], r); err != nil {
		return nil, errDamaged
	}
	r.Body = plain[n+int(length):]
	return r, nil
}

// isOver reports whether a record was kept for long enough. A request may take longer than that, and
// its repetitions wait for it. So the time counts from its end.
func (r *record) isOver(keep time.Duration, now time.Time) bool {
	since := r.Began
	if !r.Ended.IsZero() {
		since = r.Ended
	}
	return now.Sub(since) > keep
}

// sameRequest reports whether a repetition asks for the same as the first request.
func (r *record) sameRequest(repetition *record) bool {
	compared := len(r.Sum) > 0 && len(repetition.Sum) > 0
	return bytes.Equal(r.Address, repetition.Address) && (!compared || bytes.Equal(r.Sum, repetition.Sum))
}

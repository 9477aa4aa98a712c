package response

import (
	"io"
	"math"
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// ReadFrom implements [io.ReaderFrom]. The system sends files by itself, except
// for their last part, which the buffer takes.
func (w *Writer) ReadFrom(r io.Reader) (int64, error) {
	p := newPiece()
	defer p.free()
	var first int64
	if w.status == 0 { // where there is nothing to read, the response has not begun
		var err error
		first, err = io.CopyBuffer(onlyWriter{w}, io.LimitReader(r, pieceSize), p.data[:])
		if err != nil || first < pieceSize {
			return first, err
		}
	}
	sent, err := w.sendFile(r)
	if err != nil {
		return first + sent, err
	}
	rest, err := io.CopyBuffer(onlyWriter{w}, r, p.data[:])
	return first + sent + rest, err
}

type onlyWriter struct{ io.Writer }

// sendFile sends what of r the buffer does not take.
func (w *Writer) sendFile(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		if w.isBuffered() {
			return 0, nil
		}
		limited = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	length := limited.N - int64(w.buffer.size)
	if length <= 0 || !w.mayWrite() {
		return 0, nil
	}
	w.writeHeader()
	if w.gone || !w.allowsBody() {
		return 0, nil
	}
	w.begin()
	err = w.passBy(func(to http.ResponseWriter) error {
		client := caddyhttp.ResponseWriterWrapper{ResponseWriter: to}
		n, err = client.ReadFrom(&io.LimitedReader{R: limited.R, N: length})
		return err
	})
	limited.N -= n
	w.count(n)
	if w.outlives(err) {
		return n, nil // if it was reading that failed, it fails again
	}
	return n, w.explain(err)
}

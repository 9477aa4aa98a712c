package response

import "sync"

// pieceSize is how many bytes of a response are kept and written together.
const pieceSize = 16 << 10

// piece is a part of a response.
type piece struct {
	next   *piece
	flush  bool // behind it
	length int
	data   [pieceSize]byte
}

var pieces = sync.Pool{New: func() any { return new(piece) }}

func newPiece() *piece { return pieces.Get().(*piece) }

func (p *piece) free() {
	p.next, p.flush, p.length = nil, false, 0
	pieces.Put(p)
}

func (p *piece) isFull() bool { return p.length == len(p.data) }

func (p *piece) bytes() []byte { return p.data[:p.length] }

// append copies as much of data as there is room for. It returns how much.
func (p *piece) append(data []byte) int {
	n := copy(p.data[p.length:], data)
	p.length += n
	return n
}

package uniqueid

import "encoding/binary"

// TraceContextGenerator begins traces, as [NewTraceContext] does, each with a new
// UUIDv7 as its trace ID. It is safe for concurrent use, never fails, never waits and
// never makes the same trace ID twice.
type TraceContextGenerator struct {
	uuids  *UUIDv7Generator
	random func() uint64
}

// NewTraceContextGenerator makes a generator. One is enough for a process.
func NewTraceContextGenerator(options ...Option) *TraceContextGenerator {
	return &TraceContextGenerator{NewUUIDv7Generator(options...), newSettings(options).random}
}

// New begins a trace.
func (g *TraceContextGenerator) New() TraceContext {
	return TraceContext{g.uuids.New().TraceID(), randomParent(g.random), TraceSampled | TraceRandom}
}

// AppendNew begins a trace and appends the 55 characters of its header field to
// dst.
func (g *TraceContextGenerator) AppendNew(dst []byte) []byte {
	c := g.New()
	return c.append(dst)
}

func randomParent(random func() uint64) (parent [8]byte) {
	for parent == [8]byte{} {
		binary.LittleEndian.PutUint64(parent[:], draw(random))
	}
	return parent
}

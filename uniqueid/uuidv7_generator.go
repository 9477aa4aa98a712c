package uniqueid

// UUIDv7Generator makes UUIDv7s. It is safe for concurrent use, never fails,
// never waits and never makes the same ID twice.
//
// It makes a TXID, as [TXIDGenerator] does, and draws the other 20 bits from the source
// of randomness for each ID. So everything said there also holds for a UUIDv7, and the
// 20 bits reveal nothing about the rest.
type UUIDv7Generator struct{ txids *TXIDGenerator }

// NewUUIDv7Generator makes a generator. One is enough for a process.
func NewUUIDv7Generator(options ...Option) *UUIDv7Generator {
	return &UUIDv7Generator{NewTXIDGenerator(options...)}
}

// NewUUIDv7 makes a UUIDv7 with the process's own generator, the one of
// [NewTXID].
func NewUUIDv7() UUIDv7 {
	defaultTXIDs.once.Do(makeDefaultTXIDs)
	return defaultTXIDs.newUUIDv7()
}

// New makes a UUIDv7.
func (g *UUIDv7Generator) New() UUIDv7 { return g.txids.newUUIDv7() }

// AppendNew makes a UUIDv7 and appends its 36 characters to dst.
func (g *UUIDv7Generator) AppendNew(dst []byte) []byte {
	id := g.New()
	return appendUUID(dst, &id)
}

func (g *TXIDGenerator) newUUIDv7() UUIDv7 {
	high, low := g.next()
	return packUUIDv7(high, low, uint32(draw(g.random)))
}

package uniqueid

// UUIDv7Generator makes UUIDv7s. It is safe for concurrent use, never fails,
// never waits and never makes the same ID twice.
//
// It makes a TXID, as [TXIDGenerator] does, and adds 20 random bits of the same source.
// So everything said there also holds for a UUIDv7, and the 20 bits reveal nothing about
// the rest.
type UUIDv7Generator struct{ txids *TXIDGenerator }

// NewUUIDv7Generator makes a generator. One is enough for a process.
func NewUUIDv7Generator(options ...Option) *UUIDv7Generator {
	return &UUIDv7Generator{NewTXIDGenerator(options...)}
}

// NewUUIDv7 makes a UUIDv7 with the process's own generator, the one of
// [NewTXID].
func NewUUIDv7() UUIDv7 {
	processTXIDs.once.Do(makeProcessTXIDs)
	return packUUIDv7(processTXIDs.next())
}

// New makes a UUIDv7.
func (g *UUIDv7Generator) New() UUIDv7 { return packUUIDv7(g.txids.next()) }

// AppendNew makes a UUIDv7 and appends its 36 characters to dst.
func (g *UUIDv7Generator) AppendNew(dst []byte) []byte {
	id := g.New()
	return appendUUID(dst, &id)
}

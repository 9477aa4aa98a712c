package ids

import "testing"

// makers are all makers, ours last.
func makers(tb testing.TB) []Maker {
	tb.Helper()
	ours, err := Ours()
	if err != nil {
		tb.Fatal(err)
	}
	return append(Theirs(), ours...)
}

func TestMakers(t *testing.T) {
	for _, maker := range makers(t) {
		maker.Times(10)
	}
}

// BenchmarkOne is one ID at a time, made by one goroutine.
func BenchmarkOne(b *testing.B) {
	for _, maker := range makers(b) {
		b.Run(maker.Name, func(b *testing.B) {
			b.ReportAllocs()
			maker.Times(b.N)
		})
	}
}

// BenchmarkParallel is one ID at a time on each core. Compare -cpu 1,2.
func BenchmarkParallel(b *testing.B) {
	for _, maker := range append(makers(b), Unshared()) {
		b.Run(maker.Name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				const some = 100
				for n := 0; pb.Next(); n++ {
					if n%some == 0 {
						maker.Times(some)
					}
				}
			})
		})
	}
}

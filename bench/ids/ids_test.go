package ids

import "testing"

// generators are all generators, ours last.
func generators(tb testing.TB) []Generator {
	tb.Helper()
	ours, err := Ours()
	if err != nil {
		tb.Fatal(err)
	}
	return append(Theirs(), ours...)
}

func TestGenerators(t *testing.T) {
	for _, generator := range generators(t) {
		generator.Times(10)
	}
}

// BenchmarkOne is one ID at a time, made by one goroutine.
func BenchmarkOne(b *testing.B) {
	for _, generator := range generators(b) {
		b.Run(generator.Name, func(b *testing.B) {
			b.ReportAllocs()
			generator.Times(b.N)
		})
	}
}

// BenchmarkParallel is one ID at a time on each core. Compare -cpu 1,2.
func BenchmarkParallel(b *testing.B) {
	for _, generator := range append(generators(b), Unshared()) {
		b.Run(generator.Name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				const some = 100
				for n := 0; pb.Next(); n++ {
					if n%some == 0 {
						generator.Times(some)
					}
				}
			})
		})
	}
}

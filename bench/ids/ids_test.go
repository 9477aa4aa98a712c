package ids

import "testing"

func TestGenerators(t *testing.T) {
	for _, generator := range Generators() {
		generator.Times(10)
	}
}

// BenchmarkOne is one ID at a time, made by one goroutine.
func BenchmarkOne(b *testing.B) {
	for _, generator := range Generators() {
		b.Run(generator.Name, func(b *testing.B) {
			b.ReportAllocs()
			generator.Times(b.N)
		})
	}
}

// BenchmarkParallel is one ID at a time on each core. Compare -cpu 1,2.
func BenchmarkParallel(b *testing.B) {
	for _, generator := range Generators() {
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

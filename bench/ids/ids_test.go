package ids

import "testing"

func TestGenerators(t *testing.T) {
	for _, generator := range Generators() {
		generator.Times(10)
	}
}

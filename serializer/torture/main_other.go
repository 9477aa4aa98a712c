//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "torture: the harness needs Linux: memfd, prctl, tmpfs")
	os.Exit(2)
}

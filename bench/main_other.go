//go:build !linux

// Command bench measures Orderly beside other servers. It needs Linux, for it
// reads the kernel's accounts and runs strace.
package main

import "log"

func main() { log.Fatal("bench: this needs Linux") }

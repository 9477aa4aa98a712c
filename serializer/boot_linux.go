package serializer

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// bootID is another text after each start of the machine, or nothing where the
// system does not tell.
func bootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// syncData waits until the content of a file is on the disk.
func syncData(fd int) error { return unix.Fdatasync(fd) }

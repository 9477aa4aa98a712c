package integration_test

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A lock directory on a network file system is refused at load. FUSE is the one that
// needs no other machine: the test itself is the file system, mounted only for the Caddy
// process. Bug: a missing directory was refused after it had been made there.
func TestNetworkFileSystem(t *testing.T) {
	t.Parallel()
	testcaddy.NeedRoot(t, "mount")
	for _, path := range []string{"{$DIR}", "{$DIR}/a/b"} {
		device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		if err != nil {
			t.Skipf("no FUSE here: %v; load it with: modprobe fuse", err)
		}
		defer device.Close()
		go serveEmptyFS(int(device.Fd()))

		const mount = `mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 test "$DIR" && exec "$0" "$@"`
		log := startInVain(t, setup{
			site:     "serialize {\n path " + path + "\n}",
			launcher: []string{"unshare", "--mount", "sh", "-c", mount},
			files:    []*os.File{device},
		})
		for _, want := range []string{"opening lock directory", "network file system (FUSE)", "etcd"} {
			if !strings.Contains(log, want) {
				t.Errorf("%s: the log does not mention %q:\n%s", path, want, log)
			}
		}
	}
}

// serveEmptyFS answers the kernel's requests for a file system without files, until it is
// unmounted; see linux/fuse.h.
func serveEmptyFS(device int) {
	request := make([]byte, 1<<17)
	for {
		n, err := unix.Read(device, request)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EPERM) { // not mounted yet
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil || n < 40 {
			return
		}
		_, _ = unix.Write(device, answerFUSE(request[:n]))
	}
}

func answerFUSE(request []byte) []byte {
	const getattr, statfs, init = 3, 17, 26
	order, operation := binary.NativeEndian, binary.NativeEndian.Uint32(request[4:])
	body := make([]byte, map[uint32]int{getattr: 104, statfs: 80, init: 64}[operation])
	failure := int32(0)
	switch operation {
	case init: // of protocol 7.31
		order.PutUint32(body[0:], 7)
		order.PutUint32(body[4:], 31)
		order.PutUint32(body[20:], 4096) // the largest write
	case getattr:
		order.PutUint64(body[16:], 1) // inode
		order.PutUint32(body[76:], unix.S_IFDIR|0o755)
		order.PutUint32(body[80:], 2) // links
	case statfs:
	default:
		failure = -int32(unix.ENOSYS)
	}
	answer := order.AppendUint32(nil, uint32(16+len(body)))
	answer = order.AppendUint32(answer, uint32(failure))
	return slices.Concat(answer, request[8:16], body) // with the number of the request
}

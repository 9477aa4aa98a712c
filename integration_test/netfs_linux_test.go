package integration_test

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/orderly-http/caddy-orderly/internal/testcaddy"
)

// A lock directory on a network file system is refused at load. FUSE is the one that
// needs no other machine: the test itself is the file system, mounted only for the Caddy
// process.
func TestNetworkFileSystem(t *testing.T) {
	t.Parallel()
	testcaddy.NeedRoot(t, "mount")
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v; load it with: modprobe fuse", err)
	}
	defer device.Close()
	go serveEmptyFS(int(device.Fd()))

	const mount = `mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 test "$DIR" && exec "$0" "$@"`
	log := startInVain(t, setup{
		site:     "serialize {\n path {$DIR}\n}",
		launcher: []string{"unshare", "--mount", "sh", "-c", mount},
		files:    []*os.File{device},
	})
	for _, want := range []string{"opening lock directory", "network file system (FUSE)", "etcd"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not mention %q:\n%s", want, log)
		}
	}
}

// The requests of FUSE that a file system without files answers; see
// linux/fuse.h.
const (
	fuseGetattr = 3
	fuseStatfs  = 17
	fuseInit    = 26

	fuseInSize  = 40
	fuseOutSize = 16
)

// serveEmptyFS answers the kernel's requests until the file system is unmounted.
func serveEmptyFS(device int) {
	request := make([]byte, 1<<17)
	for {
		n, err := unix.Read(device, request)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EPERM) { // not mounted yet
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil || n < fuseInSize {
			return
		}
		_, _ = unix.Write(device, answerFUSE(request[:n]))
	}
}

func answerFUSE(request []byte) []byte {
	var body []byte
	failure := int32(0)
	order := binary.NativeEndian
	switch order.Uint32(request[4:]) {
	case fuseInit:
		body = make([]byte, 64)
		order.PutUint32(body[0:], 7) // protocol 7.31
		order.PutUint32(body[4:], 31)
		order.PutUint32(body[20:], 4096) // the largest write
	case fuseGetattr:
		body = make([]byte, 16+88)
		attributes := body[16:]
		order.PutUint64(attributes[0:], 1) // inode
		order.PutUint32(attributes[60:], unix.S_IFDIR|0o755)
		order.PutUint32(attributes[64:], 2) // links
	case fuseStatfs:
		body = make([]byte, 80)
	default:
		failure = -int32(unix.ENOSYS)
	}
	answer := make([]byte, fuseOutSize, fuseOutSize+len(body))
	order.PutUint32(answer[0:], uint32(fuseOutSize+len(body)))
	order.PutUint32(answer[4:], uint32(failure))
	copy(answer[8:], request[8:16]) // the number of the request
	return append(answer, body...)
}

package redis

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/orderly-http/caddy-orderly/internal/wait"
)

// startSentinel has a Sentinel watch a master. It returns the Sentinel's address.
func startSentinel(t *testing.T, master *server) string {
	t.Helper()
	address, dir := freeAddress(t), t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	host, masterPort, _ := net.SplitHostPort(master.address)
	config := filepath.Join(dir, "conf")
	must(t, os.WriteFile(config, fmt.Appendf(nil, `bind 127.0.0.1
port %s
dir %s
logfile %s/log
sentinel monitor m %s %s 1
sentinel down-after-milliseconds m 500
sentinel failover-timeout m 5000
`, port, dir, dir, host, masterPort), 0o600))
	cmd := exec.Command("redis-server", config, "--sentinel")
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return address
}

// A Sentinel replaces a master that is killed. The store lists the servers, not the
// Sentinel, and finds the new master by itself. Turns and places are kept. The old master comes
// back as a replica.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica, engines := startReplicated(t)
	sentinel := startSentinel(t, master)
	c := redis.NewClient(&redis.Options{Addr: sentinel})
	defer c.Close()
	wait.Until(t, "the Sentinel knows the replica", func() bool {
		info, _ := c.Info(t.Context(), "sentinel").Result()
		return strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=1")
	})
	for _, database := range []int{0, 3} { // bug: with 0, it was taken for a replica, since it names no role
		err := suitableFor(t, Options{Addresses: []string{sentinel}, Database: database})
		if !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), "it is a Sentinel") {
			t.Errorf("with the Sentinel and database %d: %v", database, err)
		}
	}
	holder, waiter := enter(t, engines[0]), join(t, engines[1])
	awaitReplica(t, master, replica)
	killed := time.Now()
	master.kill()
	holder.turn.Leave()
	waiter.enter(t).Leave()
	t.Logf("next entry after %.1f s", waiter.entered.Sub(killed).Seconds())
	wantGreater(t, enterSoon(t, engines[0]), waiter.turn.Token())
	if len(holder.revoked)+len(waiter.revoked) > 0 {
		t.Error("a turn was revoked")
	}
	master.start()
	wait.Until(t, "the old master follows the new one", func() bool {
		info, _ := master.try("INFO", "replication").Text() // the Sentinel cuts connections then
		return infoValue(info, "master_link_status") == "up"
	})
	enterSoon(t, engines[1])
}

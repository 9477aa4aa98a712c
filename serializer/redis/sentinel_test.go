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

	"github.com/orderly-http/caddy-orderly/internal/testprocess"
	"github.com/orderly-http/caddy-orderly/internal/wait"
	"github.com/orderly-http/caddy-orderly/serializer/internal/testlease"
)

// startSentinel has a Sentinel watch a master. It returns the Sentinel's address.
func startSentinel(t *testing.T, master *server) string {
	t.Helper()
	address, dir := testprocess.FreeAddr(t), t.TempDir()
	_, port, _ := net.SplitHostPort(address)
	host, masterPort, _ := net.SplitHostPort(master.address)
	config := filepath.Join(dir, "conf")
	testlease.Must(t, os.WriteFile(config, fmt.Appendf(nil, `bind 127.0.0.1
port %s
dir %s
logfile %s/log
sentinel monitor m %s %s 1
sentinel down-after-milliseconds m 500
sentinel failover-timeout m 5000
`, port, dir, dir, host, masterPort), 0o600))

	testprocess.Start(t, exec.Command("redis-server", config, "--sentinel"))
	return address
}

// A Sentinel replaces a master that is killed. The store lists the servers, not the
// Sentinel, and finds the new master by itself. Turns and places are kept. The old master comes
// back as a replica.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica, engines := startReplicated(t, 10*time.Second)
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
	holder, waiter := testlease.Enter(t, engines[0]), testlease.Join(t, engines[1])
	awaitReplica(t, master, replica)
	killed := time.Now()
	master.Kill()
	holder.Turn.Leave()
	waiter.Wait(t).Leave()
	t.Logf("next entry after %.1f s", waiter.Entered.Sub(killed).Seconds())
	testlease.WantGreater(t, testlease.EnterSoon(t, engines[0]), waiter.Turn.Token())
	holder.WantHeld(t)
	waiter.WantHeld(t)
	master.Run()
	wait.Until(t, "the old master follows the new one", func() bool {
		info, _ := master.try("INFO", "replication").Text() // the Sentinel cuts connections then
		return infoValue(info, "master_link_status") == "up"
	})
	testlease.EnterSoon(t, engines[1])
}

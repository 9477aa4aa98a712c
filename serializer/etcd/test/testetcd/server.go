package testetcd

import (
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// ServerEnv in the environment makes a program that calls [Main] one member of a cluster,
// for tests that kill it, stop it or cut it off. The arguments are its name, the directory
// of its data, the URLs for clients and for other members, and name=URL of all members,
// separated by commas.
const ServerEnv = "ORDERLY_TEST_ETCD_MEMBER"

// serve runs a member with etcd's default timing until the process is killed. It logs errors
// only, and says on standard output when the member begins or ceases to lead.
func serve(name, dir, client, peer, cluster string) error {
	c := newConfig(name, dir, client, peer)
	c.LogLevel, c.InitialCluster = "error", cluster
	server, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("starting member %s: %w", name, err)
	}
	for led := false; ; {
		if leads := server.Server.Leader() == server.Server.MemberID(); leads != led {
			fmt.Printf("leader: %t\n", leads)
			led = leads
		}
		select {
		case err := <-server.Err():
			return fmt.Errorf("member %s: %w", name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func newConfig(name, dir, client, peer string) *embed.Config {
	list := func(text string) []url.URL {
		u, _ := url.Parse(text) // tests give it valid ones
		return []url.URL{*u}
	}
	c := embed.NewConfig()
	c.Name, c.Dir = name, dir
	c.ListenClientUrls, c.AdvertiseClientUrls = list(client), list(client)
	c.ListenPeerUrls, c.AdvertisePeerUrls = list(peer), list(peer)
	c.InitialCluster = c.InitialClusterFromName(name)
	return c
}

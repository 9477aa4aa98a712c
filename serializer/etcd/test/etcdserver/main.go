// Command etcdserver is one member of an etcd cluster, for tests that kill it,
// stop it or cut it off. It has etcd's default timing and logs errors only.
package main

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

func main() {
	name := flag.String("name", "only", "of this member")
	dir := flag.String("dir", "", "of its data")
	client := flag.String("client", "http://127.0.0.1:2379", "URL for clients")
	peer := flag.String("peer", "http://127.0.0.1:2380", "URL for other members")
	cluster := flag.String("cluster", "", "name=URL of all members, separated by commas; default this one alone")
	flag.Parse()
	if err := run(*name, *dir, *client, *peer, *cluster); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name, dir, client, peer, cluster string) error {
	clients, err := url.Parse(client)
	if err != nil {
		return fmt.Errorf("reading URL for clients: %w", err)
	}
	peers, err := url.Parse(peer)
	if err != nil {
		return fmt.Errorf("reading URL for members: %w", err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = name, dir, "error"
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	if c.InitialCluster = cluster; cluster == "" {
		c.InitialCluster = c.InitialClusterFromName(name)
	}
	server, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("starting member %s: %w", name, err)
	}
	defer server.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	go announceLeader(ctx, server)
	select {
	case <-ctx.Done():
		return nil
	case err := <-server.Err():
		return fmt.Errorf("member %s: %w", name, err)
	}
}

// announceLeader says on standard output when this member begins or ceases to
// lead.
func announceLeader(ctx context.Context, server *embed.Etcd) {
	led := false
	for ctx.Err() == nil {
		leads := server.Server.Leader() == server.Server.MemberID()
		if leads != led {
			fmt.Printf("leader: %t\n", leads)
			led = leads
		}
		time.Sleep(20 * time.Millisecond)
	}
}

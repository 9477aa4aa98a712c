package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/orderly-http/caddy-orderly/internal/command"
	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/queueview"
)

// patience is how long a Caddy may take to answer. One that was stopped takes connections
// and never answers.
const patience = 5 * time.Second

// ask makes a request to the admin API, and reads the answer.
func (r *run) ask(method, path string, answer any) error {
	resp, err := r.send(method, path)
	if err != nil {
		return fmt.Errorf("no Caddy answers at %s within %s: %w; --address names another admin API", r.address, patience, err)
	}
	defer resp.Body.Close()
	body := json.NewDecoder(resp.Body)
	if resp.StatusCode == http.StatusOK {
		if err := body.Decode(answer); err != nil {
			return fmt.Errorf("reading the answer of what is at %s, which may be no admin API: %w; --address names another", r.address, err)
		}
		return nil
	}
	var says struct{ Error string }
	if err := body.Decode(&says); err != nil || says.Error == "" {
		return fmt.Errorf("what is at %s is no admin API, or was built without serialize: status %d; --address names another", r.address, resp.StatusCode)
	}
	text := strings.Replace(says.Error, "; "+queueview.Path+" lists", "; caddy serialize queues lists", 1)
	return &failure{complain("the Caddy at %s says: %s", r.address, text), exitCodes[resp.StatusCode]}
}

// send is Caddy's own client of the admin API, with a timeout and the status of an error.
// The log says who paused what by the name of the program and its user.
func (r *run) send(method, path string) (*http.Response, error) {
	to, err := caddy.ParseNetworkAddress(r.address)
	if err != nil || !to.IsUnixNetwork() && !strings.HasPrefix(to.Network, "tcp") {
		return nil, errors.New("expected host:port or unix//path")
	}
	to.Host = cmp.Or(to.Host, "localhost") // as in :2019
	request, err := http.NewRequestWithContext(r.Context(), method, path, nil)
	if err != nil {
		return nil, err
	}
	user := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"), fmt.Sprint("user ", os.Getuid()))
	request.Header.Set("User-Agent", "caddy serialize "+r.Name()+" by "+command.Printable(user))
	request.URL.Scheme, request.URL.Host = "http", to.JoinHostPort(0)
	if to.IsUnixNetwork() {
		request.URL.Host = "127.0.0.1"
		to.Host, _, _ = strings.Cut(to.Host, "|") // the permissions of the socket
	} else {
		request.Header.Set("Origin", "http://"+request.URL.Host)
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, to.Network, to.JoinHostPort(0))
	}}}
	return client.Do(request)
}

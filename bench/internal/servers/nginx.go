package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Nginx is Debian's. It answers every request itself.
type Nginx struct {
	Home   string
	Header string // the value of X-Request-Id, or empty
}

const nginxConfig = `worker_processes auto;
worker_rlimit_nofile 20000;
pid %[1]s/pid;
error_log stderr crit;
daemon off;

events {
	worker_connections 10000;
}

http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;

	server {
		listen %[2]s;
		%[3]s
		return 200 "ok";
	}
}
`

// Start runs it.
func (n Nginx) Start(ctx context.Context) (*Server, error) {
	program, err := find("nginx", "nginx")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	home, _, err := writeFile(n.Home, "nginx.home", "")
	if err != nil {
		return nil, err
	}
	header := ""
	if n.Header != "" {
		header = fmt.Sprintf("add_header X-Request-Id %q;", n.Header)
	}
	_, file, err := writeFile(n.Home, "nginx.conf", fmt.Sprintf(nginxConfig, home, addr, header))
	if err != nil {
		return nil, err
	}
	return start(ctx, exec.Command(program, "-p", home, "-e", "stderr", "-c", filepath.Clean(file)), addr)
}

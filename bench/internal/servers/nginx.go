package servers

import (
	"context"
	"text/template"
)

// Nginx is Debian's. It answers every request itself.
type Nginx struct {
	Home   string // where its files may lie
	Header string // the value of X-Request-Id, or empty
}

var nginx = program{
	name: "nginx",
	args: []string{"-p", "DIR", "-e", "stderr", "-c", "FILE"},
	config: template.Must(template.New("nginx").Parse(`worker_processes auto;
worker_rlimit_nofile 20000;
pid {{.Dir}}/pid;
error_log stderr crit;
daemon off;

events {
	worker_connections 10000;
}

http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;

	server {
		listen {{.Addr}};
		{{with .Server.Header}}add_header X-Request-Id "{{.}}";{{end}}
		return 200 "ok";
	}
}
`)),
}

// Start runs it.
func (n Nginx) Start(ctx context.Context) (*Server, error) { return nginx.start(ctx, n.Home, n) }

package servers

import (
	"path/filepath"
	"slices"

	"github.com/orderly-http/caddy-orderly/bench/internal/machine"
)

// HAProxy in front of a backend.
type HAProxy struct {
	Backend string // host:port
	PHP     string // the folder of its scripts, if the backend is php-fpm
	MaxConn int    // how many requests the backend gets at once; 0 is no limit
	Threads int    // 0 is one for each core, as by default
	Rules   string // more of its frontend
}

// Program is the HAProxy of PATH. Connections to the backend are kept and shared as
// freely as it can ("always"), which is its fastest.
func (h HAProxy) Program() Program {
	return Program{Name: "haproxy", Args: []string{"-db", "-f", "FILE"}, Server: h, Config: `global
	maxconn {{.Server.Connections}}
	{{with .Server.Threads}}nbthread {{.}}{{end}}
	log 127.0.0.1:1 local0 emerg

defaults
	mode http
	timeout connect 10s
	timeout client 120s
	timeout server 120s
	timeout queue 60s
	option http-keep-alive
	http-reuse always

frontend front
	bind {{.Addr}}
	{{.Server.Rules}}
	default_backend back

{{with .Server.PHP}}fcgi-app php
	docroot {{.}}
	path-info ^(/.+\.php)(/.*)?$
{{end}}
backend back
	{{if .Server.PHP}}use-fcgi-app php{{end}}
	server upstream {{.Server.Backend}} {{if .Server.PHP}}proto fcgi{{end}} {{with .Server.MaxConn}}maxconn {{.}}{{end}}
`}
}

// Connections is how many the limit of open files allows: each takes two.
func (HAProxy) Connections() int { return max(400, min(machine.FileLimit()/2, 20_000)) - 300 }

// Nginx is a server with directives for its one site.
type Nginx struct{ HTTP, Site string }

// Program is the nginx that is installed.
func (n Nginx) Program() Program {
	return Program{Name: "nginx", Args: []string{"-p", "DIR", "-e", "stderr", "-c", "FILE"}, Server: n, Config: `worker_processes auto;
worker_rlimit_nofile 20000;
pid {{.Dir}}/pid;
error_log stderr crit;
daemon off;
{{if .Root}}user www-data;{{end}}

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
	{{.Server.HTTP}}

	server {
		listen {{.Addr}};
		{{.Server.Site}}
	}
}
`}
}

// Apache is a server with its event module. Without directives, it answers every
// request with a small file.
type Apache struct {
	Modules    []string // more of them
	Directives string
	Serialize  bool // one request at a time, by mod_qos
}

// Libraries are what Debian's mod_qos needs and does not load by itself.
func (a Apache) Libraries() []string {
	if !a.Serialize {
		return nil
	}
	found, _ := filepath.Glob("/usr/lib/*/libpcre.so.3")
	return found
}

// qosDirectives let one request in at a time.
const qosDirectives = `SetEnvIf Request_URI ^/ QS_SrvSerialize=1
QS_SrvSerialize on 300
`

// Missing tells what is not installed of what it needs.
func (a Apache) Missing() error {
	if found, _ := filepath.Glob("/usr/lib/apache2/modules/mod_qos.so"); a.Serialize && (len(found) == 0 || len(a.Libraries()) == 0) {
		return &machine.Missing{Program: "libapache2-mod-qos", Package: "libapache2-mod-qos libpcre3"}
	}
	return nil
}

// Program is the apache2 that is installed.
func (a Apache) Program() Program {
	missing := a.Missing()
	if a.Serialize {
		a.Modules = slices.Concat(a.Modules, []string{"setenvif", "qos"})
		a.Directives += qosDirectives
	}
	return Program{Missing: missing, Name: "apache2", Args: []string{"-D", "FOREGROUND", "-f", "FILE"}, Server: a, Config: `ServerRoot {{.Dir}}
ServerName localhost
Listen {{.Addr}}
PidFile {{.Dir}}/pid
DefaultRuntimeDir {{.Dir}}
ErrorLog /dev/stderr
LogLevel crit
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
{{range .Server.Libraries}}LoadFile {{.}}
{{end}}{{range .Server.Modules}}LoadModule {{.}}_module /usr/lib/apache2/modules/mod_{{.}}.so
{{end}}
{{if .Root}}User www-data
Group www-data{{end}}

StartServers 2
ThreadsPerChild 64
ThreadLimit 64
ServerLimit 20
MaxRequestWorkers 1280
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 120

DocumentRoot {{.Dir}}
<Directory {{.Dir}}>
	Require all granted
	AllowOverride None
</Directory>
FileETag None
{{.Server.Directives}}
`}
}

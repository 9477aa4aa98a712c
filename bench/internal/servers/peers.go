package servers

import (
	"path/filepath"

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
	return Program{Name: "haproxy", Args: []string{"-db", "-f", "FILE"}, Config: "haproxy.cfg", Server: h}
}

// Connections is how many the limit of open files allows: each takes two.
func (HAProxy) Connections() int { return max(400, min(machine.FileLimit()/2, 20_000)) - 300 }

// Nginx is a server with directives for its one site.
type Nginx struct{ HTTP, Site string }

// Program is the nginx that is installed.
func (n Nginx) Program() Program {
	return Program{Name: "nginx", Args: []string{"-p", "DIR", "-e", "stderr", "-c", "FILE"}, Config: "nginx.conf", Server: n}
}

// Apache is a server with its event module. Without directives, it answers every
// request with a small file.
type Apache struct {
	Modules    []string // more of them
	Directives string
	Serialize  bool // one request at a time, by mod_qos
}

// Program is the apache2 that is installed.
func (a Apache) Program() Program {
	p := Program{Name: "apache2", Args: []string{"-D", "FOREGROUND", "-f", "FILE"}, Config: "apache.conf", Server: a, Lingers: a.Serialize}
	if module, _ := filepath.Glob("/usr/lib/apache2/modules/mod_qos.so"); a.Serialize && (len(module) == 0 || len(a.Libraries()) == 0) {
		p.Missing = &machine.Missing{Program: "libapache2-mod-qos", Package: "libapache2-mod-qos libpcre3"}
	}
	return p
}

// Libraries are what Debian's mod_qos needs and does not load by itself.
func (Apache) Libraries() []string {
	found, _ := filepath.Glob("/usr/lib/*/libpcre.so.3")
	return found
}

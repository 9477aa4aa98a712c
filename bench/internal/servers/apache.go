package servers

import (
	"context"
	"os"
	"text/template"
)

// Apache is Debian's apache2, with its event module. It answers every request
// with a small file.
type Apache struct {
	Home     string // where its files may lie
	Header   string // the value of X-Request-Id, or empty
	UniqueID bool   // with mod_unique_id
}

var apache = program{
	name: "apache2",
	args: []string{"-D", "FOREGROUND", "-f", "FILE"},
	config: template.Must(template.New("apache").Parse(`ServerRoot {{.Dir}}
ServerName localhost
Listen {{.Addr}}
PidFile {{.Dir}}/pid
DefaultRuntimeDir {{.Dir}}
ErrorLog /dev/stderr
LogLevel crit
{{range .Server.Modules}}LoadModule {{.}}_module /usr/lib/apache2/modules/mod_{{.}}.so
{{end}}
{{if .Server.Root}}User www-data
Group www-data{{end}}

StartServers 2
ThreadsPerChild 64
MaxRequestWorkers 512
ServerLimit 8
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 120

DocumentRoot {{.Dir}}
<Directory {{.Dir}}>
	Require all granted
	AllowOverride None
</Directory>
FileETag None
{{with .Server.Header}}Header set X-Request-Id "{{.}}"{{end}}
`)),
}

// Start runs it.
func (a Apache) Start(ctx context.Context) (*Server, error) { return apache.start(ctx, a.Home, a) }

// Modules are those it loads.
func (a Apache) Modules() []string {
	modules := []string{"mpm_event", "authz_core", "dir", "headers"}
	if a.UniqueID {
		modules = append(modules, "unique_id")
	}
	return modules
}

// Root reports whether it begins as root.
func (Apache) Root() bool { return os.Geteuid() == 0 }

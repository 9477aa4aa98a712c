package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Apache is Debian's apache2, with its event module. It answers every request
// with a small file.
type Apache struct {
	Home     string
	Header   string // the value of X-Request-Id, or empty
	UniqueID bool   // with mod_unique_id
}

const apacheModules = "/usr/lib/apache2/modules"

const apacheConfig = `ServerRoot %[1]s
ServerName localhost
Listen %[2]s
PidFile %[1]s/pid
DefaultRuntimeDir %[1]s
ErrorLog /dev/stderr
LogLevel crit
%[3]s

StartServers 2
ThreadsPerChild 64
MaxRequestWorkers 512
ServerLimit 8
KeepAlive On
MaxKeepAliveRequests 0
KeepAliveTimeout 120

DocumentRoot %[1]s
<Directory %[1]s>
	Require all granted
	AllowOverride None
</Directory>
FileETag None
%[4]s
`

// Start runs it.
func (a Apache) Start(ctx context.Context) (*Server, error) {
	program, err := find("apache2", "apache2")
	if err != nil {
		return nil, err
	}
	addr, err := FreeAddr()
	if err != nil {
		return nil, err
	}
	home, _, err := writeFile(a.Home, "index.html", "ok")
	if err != nil {
		return nil, err
	}
	header := ""
	if a.Header != "" {
		header = fmt.Sprintf("Header set X-Request-Id %q", a.Header)
	}
	_, file, err := writeFile(a.Home, "apache2.conf", fmt.Sprintf(apacheConfig, home, addr, a.modules(), header))
	if err != nil {
		return nil, err
	}
	return start(ctx, exec.Command(program, "-D", "FOREGROUND", "-f", filepath.Clean(file)), addr)
}

func (a Apache) modules() string {
	names := []string{"mpm_event", "authz_core", "dir", "headers"}
	if a.UniqueID {
		names = append(names, "unique_id")
	}
	var lines []string
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("LoadModule %s_module %s/mod_%s.so", name, apacheModules, name))
	}
	if os.Geteuid() == 0 {
		lines = append(lines, "User www-data", "Group www-data")
	}
	return strings.Join(lines, "\n")
}

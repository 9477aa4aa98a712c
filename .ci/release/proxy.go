// Proxy writes the modules of a released version as a module proxy on disk. So what the
// tags publish can be tried before they are pushed.
//
//	go run . <repository> <version> <directory>
//	GOPROXY=file://<directory>,https://proxy.golang.org,direct GONOSUMDB=github.com/orderly-http xcaddy build ...
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const root = "github.com/orderly-http/caddy-orderly"

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: proxy <repository> <version> <directory>")
	}
	engines, err := exec.Command("bash", filepath.Join(os.Args[1], ".ci/release/published")).Output()
	if err != nil {
		log.Fatalf("listing the modules that are published: %v", err)
	}
	for _, folder := range append([]string{""}, strings.Fields(string(engines))...) {
		if err := publish(os.Args[1], os.Args[2], os.Args[3], folder); err != nil {
			log.Fatalf("publishing module %q: %v", path.Join(root, folder), err)
		}
	}
}

// publish writes one module, as its tag has it.
func publish(repository, version, proxy, folder string) error {
	mod := module.Version{Path: path.Join(root, folder), Version: version}
	tag := path.Join(folder, version)
	dir := filepath.Join(proxy, filepath.FromSlash(mod.Path), "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	goMod, err := git(repository, "show", tag+":"+path.Join(folder, "go.mod"))
	if err != nil {
		return err
	}
	stamp, err := git(repository, "log", "-1", "--format=%cI", tag)
	if err != nil {
		return err
	}
	committed, err := time.Parse(time.RFC3339, strings.TrimSpace(string(stamp)))
	if err != nil {
		return fmt.Errorf("reading the time of %s: %w", tag, err)
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": committed.UTC()})
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{version + ".mod": goMod, version + ".info": info, "list": []byte(version + "\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return pack(filepath.Join(dir, version+".zip"), func(w io.Writer) error {
		return zip.CreateFromVCS(w, mod, repository, tag, folder)
	})
}

func pack(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return fmt.Errorf("packing %s: %w", name, err)
	}
	return f.Close()
}

func git(repository string, args ...string) ([]byte, error) {
	out, err := exec.Command("git", append([]string{"-C", repository}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

package serialize

import (
	"os"
	"path/filepath"
	"slices"
)

// directory is the identity of the directory of a handler's queues.
type directory struct {
	// names are all paths of the directory: as written in the configuration, with
	// symbolic links resolved when the configuration was loaded, and the engine's.
	// Handlers that share a name share their queues.
	names []string

	// path is the engine's path of the directory.
	path string
}

// resolveDirectory identifies the directory at a path. If an engine is open for the
// directory already, it takes that engine's path. The path may be a symbolic link, a
// bind mount or, on some systems, differ in case.
//
// An engine that was opened by the same path comes first. It knows the holders in
// the directory that the path led to earlier.
func resolveDirectory(path string) directory {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	path = filepath.Clean(path)
	d := directory{path: path}
	for _, open := range openEngines() {
		if open.path == path {
			d.path = path
			break
		}
		if d.path == path && open.path != "" && sameDirectory(open.path, path) {
			d.path = open.path
		}
	}
	d.names = []string{path, realPath(path), d.path}
	slices.Sort(d.names)
	d.names = slices.Compact(d.names)
	return d
}

// same reports whether two directories have a name in common.
func (d directory) same(other directory) bool {
	return slices.ContainsFunc(d.names, func(name string) bool { return slices.Contains(other.names, name) })
}

// sameDirectory reports whether two paths lead to the same directory now.
func sameDirectory(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return realPath(a) == realPath(b)
	}
	second, err := os.Stat(b)
	if err != nil {
		return realPath(a) == realPath(b)
	}
	return os.SameFile(first, second)
}

// realPath resolves the symbolic links of a path. Its missing end is kept, since
// it is created there later.
func realPath(path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real
	}
	parent := filepath.Dir(path)
	if parent == path {
		return path
	}
	return filepath.Join(realPath(parent), filepath.Base(path))
}

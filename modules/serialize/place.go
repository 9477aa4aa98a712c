package serialize

import (
	"os"
	"path/filepath"
	"slices"
)

// place is where a handler's queues are kept.
type place struct {
	// names are all names of the directory that count for which queues are the
	// same: as it is written in the configuration, where that leads when the
	// configuration is loaded, and as the engine calls it.
	names []string

	// path is how the engine calls it.
	path string
}

// placeOf finds the place of a directory. One that an engine is open for already
// is that engine's, whatever it is called now: by a symbolic link, a bind mount
// or, on some systems, in capitals.
//
// A path that is written the same comes first: the engine of it knows who is
// inside, also in the directory that the path led to before.
func placeOf(path string) place {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	path = filepath.Clean(path)
	p := place{path: path}
	for _, open := range openEngines() {
		if open.path == path {
			p.path = path
			break
		}
		if p.path == path && open.path != "" && sameDirectory(open.path, path) {
			p.path = open.path
		}
	}
	p.names = []string{path, realPath(path), p.path}
	slices.Sort(p.names)
	p.names = slices.Compact(p.names)
	return p
}

// same reports whether two handlers' directories are one, as far as their names
// tell.
func (p place) same(other place) bool {
	return slices.ContainsFunc(p.names, func(name string) bool { return slices.Contains(other.names, name) })
}

// sameDirectory reports whether two paths lead to one directory.
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

// realPath is where a path leads, as far as it exists: what is missing is going
// to be made in there.
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

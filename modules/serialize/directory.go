package serialize

import (
	"os"
	"path/filepath"
)

// resolveDirectory returns the path by which an engine is open for a directory, or else
// the path itself, cleaned. The path may be a symbolic link, a bind mount or, on some
// systems, differ in case.
//
// An engine that was opened by the same path comes first. It knows the holders in
// the directory that the path led to earlier.
func resolveDirectory(path string) string {
	path = filepath.Clean(path)
	found := path
	for _, open := range openEngines() {
		if open.path == path {
			return path
		}
		if found == path && open.path != "" && sameDirectory(open.path, path) {
			found = open.path
		}
	}
	return found
}

// directoryNames are the names of a handler's directory. The path comes first. It may lead
// to another directory by the next reload.
func directoryNames(path string) []string {
	return []string{filepath.Clean(path), resolveDirectory(path)}
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

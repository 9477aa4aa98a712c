//go:build unix && !linux && !aix && !solaris

package dir

// RenameNew renames a file. These systems cannot do that only if the new name is free.
func (d *Dir) RenameNew(from, to string) error { return d.Rename(from, to) }

package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaceEnv is set if the program has its own mount namespace.
const namespaceEnv = "ORDERLY_TORTURE_NAMESPACE"

// enterNamespace continues this program in a mount namespace of its own, if it may. A
// mount then vanishes with the program, however it ends.
func enterNamespace() {
	if os.Getenv(namespaceEnv) != "" || os.Getuid() != 0 {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Unshare(unix.CLONE_NEWNS) != nil || unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil {
		return
	}
	if program, err := os.Executable(); err == nil {
		err = syscall.Exec(program, os.Args, append(os.Environ(), namespaceEnv+"=1"))
		fmt.Fprintln(os.Stderr, "torture: continuing in a mount namespace:", err)
	}
	os.Exit(2) // this thread alone is in the other namespace
}

// mountSmall mounts a file system with little more room than the tickets need. It reports
// whether that succeeded.
func mountSmall(dir string, tickets int) bool {
	options := fmt.Sprintf("nr_inodes=%d,size=1m,mode=755", 2*tickets+500)
	return os.Getenv(namespaceEnv) != "" && unix.Mount("torture", dir, "tmpfs", 0, options) == nil
}

func unmount(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) }

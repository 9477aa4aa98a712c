// Package test holds the tests of the etcd engine against etcd itself. It is a
// module of its own, so that nobody who uses the engine needs an etcd server.
//
//	go test ./...                                                # everything that this user may do
//	go test -run TestFaults -v -timeout 30m . -long              # longer, with all faults
//	go test -run TestHistories -v -timeout 60m . -for 30m        # histories of lock, token and register
//	go test -run TestHandOver -v -timeout 20m . -long            # figures beside a put and beside concurrency.Mutex
//
// The tests of faults put members and processes into network namespaces, which
// needs root and iproute2; without these, the tests are skipped. Some need the
// system's etcd, on Debian from etcd-server.
package test

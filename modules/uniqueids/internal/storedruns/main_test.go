package storedruns

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/caddyserver/certmagic"
)

// long raises the recoveries of their test from some dozens to ten thousand:
//
//	go test -run Recover -timeout 300m -v ./modules/uniqueids/internal/storedruns -long
var long = flag.Bool("long", false, "kill ten thousand processes in the middle of taking a run")

const (
	roleVar = "STOREDRUNS_TEST_ROLE"
	dirVar  = "STOREDRUNS_TEST_DIR"
	kindVar = "STOREDRUNS_TEST_STORAGE"
)

// TestMain runs the tests or, where a test has started this binary again, the
// part of the test that is a process of its own.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	if role == "" {
		os.Exit(m.Run())
	}
	storage := storages[os.Getenv(kindVar)](os.Getenv(dirVar))
	if err := roles[role](storage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// storages are what runs are taken from, by name.
var storages = map[string]func(dir string) certmagic.Storage{
	"files": func(dir string) certmagic.Storage { return &certmagic.FileStorage{Path: dir} },
	// Any other storage, so that runs must be claimed. Its lock lets everybody in.
	"lockless": func(dir string) certmagic.Storage {
		return lockless{&certmagic.FileStorage{Path: dir}}
	},
}

type lockless struct{ certmagic.Storage }

func (lockless) Lock(context.Context, string) error   { return nil }
func (lockless) Unlock(context.Context, string) error { return nil }

var roles = map[string]func(certmagic.Storage) error{
	"victim":    takeOnAndOn,
	"contender": takeWhenAsked,
}

// takeOnAndOn takes runs until it is killed, and prints each.
func takeOnAndOn(storage certmagic.Storage) error {
	for {
		run, err := Next(context.Background(), storage)
		if err != nil {
			return err
		}
		if _, err := os.Stdout.WriteString(strconv.Itoa(int(run)) + "\n"); err != nil {
			return nil //nolint:nilerr // the test has ended
		}
	}
}

// takeWhenAsked takes a run for each line that it reads, and prints it.
func takeWhenAsked(storage certmagic.Storage) error {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		run, err := Next(context.Background(), storage)
		answer := strconv.Itoa(int(run))
		if err != nil {
			answer = "none: " + err.Error()
		}
		if _, err := os.Stdout.WriteString(answer + "\n"); err != nil {
			return nil //nolint:nilerr // the test has ended
		}
	}
	return nil
}

package socket_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/socket"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestASecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.sock")
	lock, err := socket.Claim(path)
	testkit.Check(t, err)
	if _, err := socket.Claim(path); !errors.Is(err, socket.ErrClaimed) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want ErrClaimed with the path", err)
	}
	testkit.Check(t, lock.Close())
	again, err := socket.Claim(path)
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	_ = again.Close()
}

func TestTheSocketIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	old := syscall.Umask(0) // the widest that a process may have been started with
	defer syscall.Umask(old)
	l, err := socket.Listen(t.Context(), path)
	testkit.Check(t, err)
	defer l.Close()
	f, err := os.Stat(path)
	testkit.Check(t, err)
	if got := f.Mode().Perm(); got != 0o600 {
		t.Errorf("mode %o, want 600", got)
	}
}

func TestWhatStandsAtTheSocketsPath(t *testing.T) {
	cases := map[string]struct {
		before func(t *testing.T, path string)
		want   string // part of the error; "" when Listen succeeds
	}{
		"nothing": {func(*testing.T, string) {}, ""},
		"the socket of a dead process": {func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			testkit.Check(t, err)
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			_ = l.Close()
		}, ""},
		"the socket of a living one": {func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			testkit.Check(t, err)
			t.Cleanup(func() { _ = l.Close() })
		}, "another program listens there"},
		"a file": {func(t *testing.T, path string) {
			testkit.Check(t, os.WriteFile(path, nil, 0o600))
		}, "a file that is not a socket"},
		"a folder": {func(t *testing.T, path string) {
			testkit.Check(t, os.Mkdir(path, 0o700))
		}, "a file that is not a socket"},
		"a link": {func(t *testing.T, path string) {
			testkit.Check(t, os.Symlink("/dev/null", path))
		}, "a file that is not a socket"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.sock")
			c.before(t, path)
			l, err := socket.Listen(context.Background(), path)
			if c.want == "" {
				testkit.Check(t, err)
				_ = l.Close()
				return
			}
			if err == nil {
				_ = l.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and the path", err, c.want)
			}
		})
	}
}

func TestEndpoints(t *testing.T) {
	for endpoint, want := range map[string]string{
		"/run/x.sock": "/run/x.sock", "unix:///run/x.sock": "/run/x.sock", "unix:/run/x.sock": "/run/x.sock",
		"run/x.sock": "", "unix://run/x.sock": "", "tcp://1.2.3.4:5": "", "": "", "unix:": "", "@abstract": "",
		"/" + strings.Repeat("a", 106): "/" + strings.Repeat("a", 106), "/" + strings.Repeat("a", 107): "",
	} {
		got, err := socket.Path(endpoint)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", endpoint, got, err, want)
		}
	}
}

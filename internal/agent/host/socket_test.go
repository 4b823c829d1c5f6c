package host_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestSocketsOfAKubeletAreDistinct(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: testkit.Dir(t)}
	path := root.Path("var/lib/kubelet/pod-resources/kubelet.sock")
	testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if s, found := host.PodResourcesSocket(root); found {
		t.Errorf("a missing socket is %v", s)
	}
	testkit.Check(t, os.WriteFile(path, nil, 0o600))
	if s, found := host.PodResourcesSocket(root); found {
		t.Errorf("a file that is not a socket is %v", s)
	}
	serve := func(made time.Time) host.Socket {
		t.Helper()
		testkit.Check(t, os.Remove(path))
		l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
		testkit.Check(t, err)
		t.Cleanup(func() { l.Close() })
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		testkit.Check(t, os.Chtimes(path, made, made))
		s, found := host.PodResourcesSocket(root)
		again, _ := host.PodResourcesSocket(root)
		if !found || s != again || !s.Made.Equal(made) {
			t.Errorf("got %v (%v) and %v, want one socket of %v", s, found, again, made)
		}
		return s
	}
	at := time.Unix(1e9, 0)
	// The second may have the inode of the first.
	if first, second := serve(at), serve(at.Add(time.Second)); first == second {
		t.Errorf("two sockets are %v", first)
	}
}

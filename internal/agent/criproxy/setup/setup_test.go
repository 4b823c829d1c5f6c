package setup_test

import (
	"context"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/agent/criproxy/setup"
	"github.com/tenon-project/tenon/internal/testkit"
)

const (
	dropIn       = "/etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf"
	registration = "/etc/runtime/hookserver.d/tenon-agent.json"
)

func node(t *testing.T) setup.Setup {
	t.Helper()
	return setup.Setup{
		Root: t.TempDir(), KubeletDir: "/etc/kubernetes/kubelet.conf.d", HooksDir: "/etc/runtime/hookserver.d",
		Listen: "/run/tenon/cri.sock", AgentSocket: "/run/tenon/hooks.sock",
	}
}

func put(t *testing.T, s setup.Setup, path, content string) {
	t.Helper()
	path = filepath.Join(s.Root, path)
	testkit.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Check(t, os.WriteFile(path, []byte(content), 0o644))
}

// tree is every file below the node's root.
func tree(t *testing.T, s setup.Setup) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(s.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Type() != 0 {
			return err
		}
		content, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, s.Root)] = string(content)
		return err
	})
	testkit.Check(t, err)
	return files
}

func install(t *testing.T, s setup.Setup) []string {
	t.Helper()
	did, err := s.Install(t.Context())
	testkit.Check(t, err)
	return did
}

func TestInstallTwiceAndUninstallTwice(t *testing.T) {
	s := node(t)
	put(t, s, "/etc/kubernetes/kubelet.conf.d/10-mine.conf", "maxPods: 50\n")
	before := tree(t, s)
	restart := "to do: restart the kubelet; running containers are not touched"
	away := "to do: start tenon-runtime-proxy first: no process listens on /run/tenon/cri.sock"
	if diff := cmp.Diff([]string{"wrote: " + registration, "wrote: " + dropIn, away, restart},
		install(t, s)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	after := tree(t, s)
	var config map[string]any
	testkit.Check(t, yaml.Unmarshal([]byte(after[dropIn]), &config))
	want := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix:///run/tenon/cri.sock",
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("drop-in (-want +got):\n%s", diff)
	}
	r, err := criproxy.ParseRegistration([]byte(after[registration]))
	testkit.Check(t, err)
	if r.Endpoint != "/run/tenon/hooks.sock" || r.Policy != criproxy.Ignore ||
		!slices.Contains(r.Hooks, criproxy.PreStartContainer) {
		t.Errorf("registration %+v, want the agent's socket, Ignore, and PreStartContainer among the hooks", r)
	}
	if diff := cmp.Diff([]string{"unchanged: " + registration, "unchanged: " + dropIn, away, restart},
		install(t, s)); diff != "" {
		t.Errorf("second (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(after, tree(t, s)); diff != "" {
		t.Errorf("the second changed files (-want +got):\n%s", diff)
	}
	stop := "to do: restart the kubelet, and stop tenon-runtime-proxy after that"
	for i, want := range [][]string{
		{"removed: " + dropIn, "removed: " + registration, stop},
		{"not there: " + dropIn, "not there: " + registration, stop},
	} {
		did, err := s.Uninstall(t.Context())
		testkit.Check(t, err)
		if diff := cmp.Diff(want, did); diff != "" {
			t.Errorf("uninstall %d (-want +got):\n%s", i, diff)
		}
	}
	if diff := cmp.Diff(before, tree(t, s)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

func TestAnotherEndpointReplacesTheFirst(t *testing.T) {
	s := node(t)
	install(t, s)
	s.Listen = "unix:///run/tenon/run/crio/crio.sock"
	install(t, s)
	if got := tree(t, s)[dropIn]; !strings.Contains(got,
		"containerRuntimeEndpoint: unix:///run/tenon/run/crio/crio.sock\n") {
		t.Errorf("the drop-in is %q", got)
	}
}

func TestWhatOthersWroteIsKept(t *testing.T) {
	s := node(t)
	const custom = `{"remote-endpoint":"/run/other.sock","failure-policy":"Fail","runtime-hooks":["PreStartContainer"]}`
	put(t, s, registration, custom)
	install(t, s)
	did, err := s.Uninstall(t.Context())
	testkit.Check(t, err)
	if got := tree(t, s)[registration]; got != custom ||
		!slices.Contains(did, "kept, as it was changed: "+registration) {
		t.Errorf("the registration is %q, reported %q, want it kept", got, did)
	}
	put(t, s, dropIn, "maxPods: 5\n")
	for what, do := range map[string]func(context.Context) ([]string, error){
		"install":   s.Install,
		"uninstall": s.Uninstall,
	} {
		if _, err := do(t.Context()); err == nil || !strings.Contains(err.Error(), dropIn) ||
			!strings.Contains(err.Error(), "move it away") {
			t.Errorf("%s over a foreign drop-in: got %v, want an error with its name", what, err)
		}
	}
	if got := tree(t, s)[dropIn]; got != "maxPods: 5\n" {
		t.Errorf("the foreign drop-in is %q", got)
	}
}

func TestWhatPreventsAKubeletFromReadingTheDropInIsReported(t *testing.T) {
	cases := map[string]struct {
		kubelet string // words of its command line
		other   string // another drop-in, after ours
		want    []string
	}{
		"nothing": {"/usr/bin/kubelet --config=/x --config-dir=/etc/kubernetes/kubelet.conf.d/", "", nil},
		"no folder": {
			"/usr/bin/kubelet --config /x", "",
			[]string{`to do: start the kubelet (pid 7) with --config-dir=/etc/kubernetes/kubelet.conf.d: it has ""`},
		},
		"another folder": {
			"kubelet --config-dir /other", "",
			[]string{`to do: start the kubelet (pid 7) with --config-dir=/etc/kubernetes/kubelet.conf.d: it has ` +
				`"/other"`},
		},
		"a flag that goes before it": {
			"kubelet --config-dir=/etc/kubernetes/kubelet.conf.d --container-runtime-endpoint " +
				"unix:///run/containerd/containerd.sock", "",
			[]string{"to do: start the kubelet (pid 7) without " +
				"--container-runtime-endpoint=unix:///run/containerd/containerd.sock: it goes before the drop-in"},
		},
		"a later drop-in": {
			"kubelet --config-dir=/etc/kubernetes/kubelet.conf.d", "containerRuntimeEndpoint: unix:///x\n",
			[]string{"to do: take containerRuntimeEndpoint out of /etc/kubernetes/kubelet.conf.d/99-other.conf: it " +
				"goes before the drop-in"},
		},
		"a later drop-in about other things": {
			"kubelet --config-dir=/etc/kubernetes/kubelet.conf.d", "maxPods: 5\n",
			nil,
		},
		"no kubelet": {"/usr/bin/kubelet-config-checker --x", "", nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := node(t)
			put(t, s, "/proc/7/cmdline", strings.ReplaceAll(c.kubelet, " ", "\x00")+"\x00")
			put(t, s, "/proc/8/cmdline", "")
			put(t, s, "/etc/kubernetes/kubelet.conf.d/99-other.conf", c.other)
			l, err := net.Listen("unix", listening(t, &s))
			testkit.Check(t, err)
			defer l.Close()
			did := install(t, s)
			got := did[2 : len(did)-1]
			if diff := cmp.Diff(c.want, append([]string(nil), got...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// listening makes a place for the proxy's socket.
func listening(t *testing.T, s *setup.Setup) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri")
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	testkit.Check(t, os.Symlink(dir, filepath.Join(s.Root, "run")))
	s.Listen = "/run/cri.sock"
	return filepath.Join(dir, "cri.sock")
}

func TestPathsThatAreWrong(t *testing.T) {
	s := node(t)
	s.Listen = "cri.sock"
	if _, err := s.Install(t.Context()); err == nil || !strings.Contains(err.Error(), `listen: "cri.sock"`) {
		t.Errorf("got %v, want an error about listen", err)
	}
	s = node(t)
	s.AgentSocket = "tcp://x"
	if _, err := s.Install(t.Context()); err == nil || !strings.Contains(err.Error(), `agent-socket: "tcp://x"`) {
		t.Errorf("got %v, want an error about agent-socket", err)
	}
	if got := tree(t, s); len(got) != 0 {
		t.Errorf("wrote %v, want nothing", got)
	}
	s = node(t)
	put(t, s, "/etc/runtime", "a file in the way")
	if _, err := s.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "/etc/runtime") {
		t.Errorf("got %v, want an error about /etc/runtime", err)
	}
}

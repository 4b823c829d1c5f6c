package app

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/testkit"
)

// execute runs a command line.
func execute(ctx context.Context, words ...string) (string, error) {
	var out bytes.Buffer
	c := NewCommand()
	c.SetArgs(words)
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// runtime answers what a proxy asks at its start, and Version. What it was not asked to implement is a fault.
type runtime struct {
	cri.RuntimeServiceServer
}

func (runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "small", RuntimeVersion: "7", RuntimeApiVersion: "v1"}, nil
}

func (runtime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

func (runtime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{}, nil
}

func TestRunCheckAndEnd(t *testing.T) {
	dir, err := os.MkdirTemp("", "cri")
	testkit.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("runtime.sock"))
	testkit.Check(t, err)
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, runtime{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)

	flags := []string{"--listen", at("cri.sock"), "--runtime", "unix://" + at("runtime.sock"), "--hooks-dir", dir}
	if out, err := execute(t.Context(), append([]string{"check", "--timeout=100ms"}, flags...)...); err == nil ||
		!strings.Contains(err.Error(), "cri.sock: Version:") {
		t.Errorf("check without a proxy: got %q, %v, want an error with the socket", out, err)
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at("notify.sock"), Net: "unixgram"})
	testkit.Check(t, err)
	defer manager.Close()
	t.Setenv("NOTIFY_SOCKET", at("notify.sock"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := execute(ctx, append([]string{"run"}, flags...)...)
		done <- err
	}()
	testkit.Check(t, manager.SetReadDeadline(time.Now().Add(20*time.Second)))
	received := make([]byte, 64)
	n, err := manager.Read(received)
	if err != nil || string(received[:n]) != "READY=1" {
		t.Fatalf("the service manager received %q, %v, want READY=1", received[:n], err)
	}

	out, err := execute(t.Context(), append([]string{"check"}, flags...)...)
	want := "ok    " + at("cri.sock") + ": small 7, CRI v1\nnone  " + dir +
		": no hook server is registered: pods with CPUs or devices do not start\n"
	if err != nil || out != want {
		t.Errorf("check: got %q, %v, want %q", out, err, want)
	}
	for name, content := range map[string]string{
		"a.json": `{"remote-endpoint":"` + at("runtime.sock") +
			`","failure-policy":"Fail","runtime-hooks":["PreStartContainer"]}`,
		"b.json": `{"remote-endpoint":"/unused","failure-policy":"Ignore","runtime-hooks":["PreStartContainer"]}`,
		"c.json": `{"failure-policy":"Never"}`,
	} {
		testkit.Check(t, os.WriteFile(at(name), []byte(content), 0o600))
	}
	out, err = execute(t.Context(), append([]string{"check"}, flags...)...)
	for _, line := range []string{
		"ok    " + at("a.json") + ": " + at("runtime.sock") + ", Fail, [PreStartContainer]",
		"away  " + at("b.json") + ": /unused, Ignore, [PreStartContainer]",
	} {
		if !strings.Contains(out, line+"\n") {
			t.Errorf("check lacks %q:\n%s", line, out)
		}
	}
	if err == nil || !strings.Contains(err.Error(), at("c.json")) ||
		!strings.Contains(err.Error(), `"Never": want Fail or Ignore`) {
		t.Errorf("check: got %v, want an error about c.json", err)
	}

	if _, err := execute(t.Context(), append([]string{"run"}, flags...)...); err == nil ||
		!strings.Contains(err.Error(), "another process has the socket") {
		t.Errorf("a second proxy: got %v, want that another process has the socket", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestWhereTheProxyListensByDefault(t *testing.T) {
	for runtime, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "/run/tenon/cri.sock",
		"unix:///var/run/crio/crio.sock":         "/run/tenon/run/crio/crio.sock",
	} {
		if got := listenFor("", runtime); got != want {
			t.Errorf("%s: got %s, want %s", runtime, got, want)
		}
	}
}

func TestCommandLinesThatAreWrong(t *testing.T) {
	for words, want := range map[string]string{
		"run extra":                   "unknown command",
		"run --listen here":           `listen: "here": want the absolute path`,
		"run --runtime localhost:1":   `runtime: "localhost:1": want the absolute path`,
		"run --log-level 5":           "unknown flag: --log-level",
		"install --agent-socket here": `agent-socket: "here": want the absolute path`,
		"nothing":                     "unknown command",
	} {
		if _, err := execute(t.Context(), strings.Fields(words)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", words, err, want)
		}
	}
}

// TestTheFile: what it says counts for all verbs, where no flag is given, and is refused with its place.
func TestTheFile(t *testing.T) {
	file, root := filepath.Join(t.TempDir(), "proxy.yaml"), t.TempDir()
	write := func(fields string) {
		t.Helper()
		text := "apiVersion: config.tenon.sh/v1alpha1\nkind: RuntimeProxyConfiguration\n" + fields
		testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
	}
	for fields, want := range map[string]string{
		"listne: /a\n":            `proxy.yaml:3:1: listne: unknown field, did you mean "listen"?`,
		"runtime: [/a]\n":         "proxy.yaml:3:1: runtime: a list is not allowed",
		"\nlisten: here\n":        `proxy.yaml:4:1: listen: --listen: "here": want the absolute path`,
		"hooksDir: ''\n":          "proxy.yaml:3:1: hooksDir: --hooks-dir: is empty",
		"imageEndpoint: a:b\n":    "proxy.yaml:3:1: imageEndpoint: --image-endpoint:",
		"runtime: /a\nruntime: b": "proxy.yaml:4:1: runtime:",
	} {
		write(fields)
		if _, err := execute(t.Context(), "run", "--config", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", fields, err, want)
		}
	}
	write("listen: /run/mine.sock\nhooksDir: /etc/hooks\n")
	_, err := execute(t.Context(), "install", "--root", root, "--config", file, "--hooks-dir=/etc/others")
	if err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(root, defaultKubelet, "90-tenon-runtime-proxy.conf"))
	if err != nil || !strings.Contains(string(text), "/run/mine.sock") {
		t.Errorf("the kubelet's file has %s, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/others/tenon-agent.json")); err != nil {
		t.Error(err)
	}
}

func TestInstallAndUninstall(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct{ words, want string }{
		{"install --root " + root, "wrote: /etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf\n"},
		{
			"install --runtime unix:///run/crio/crio.sock --root " + root,
			"wrote: /etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf\n",
		},
		{
			"install --runtime unix:///run/crio/crio.sock --root " + root,
			"unchanged: /etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf\n",
		},
		{"uninstall --root " + root, "removed: /etc/kubernetes/kubelet.conf.d/90-tenon-runtime-proxy.conf\n"},
	} {
		out, err := execute(t.Context(), strings.Fields(c.words)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.words, out, err, c.want)
		}
	}
}

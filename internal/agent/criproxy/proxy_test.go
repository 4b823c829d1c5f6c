package criproxy_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/runtime/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/agent/socket"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestOptionsThatAreWrong(t *testing.T) {
	good := criproxy.Options{
		Listen: "/run/tenon/cri.sock", Runtime: "unix:///run/containerd/containerd.sock",
		HooksDir: "/etc/runtime/hookserver.d",
	}
	if _, err := criproxy.New(good); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	cases := map[string]struct {
		change func(*criproxy.Options)
		want   string
	}{
		"a relative socket": {
			func(o *criproxy.Options) { o.Listen = "cri.sock" },
			`listen: "cri.sock": want the absolute path of a unix socket`,
		},
		"a runtime over TCP": {
			func(o *criproxy.Options) { o.Runtime = "tcp://localhost:1" },
			`runtime: "tcp://localhost:1": want the absolute path`,
		},
		"images over TCP": {
			func(o *criproxy.Options) { o.Images = "localhost:1" },
			`image-endpoint: "localhost:1": want the absolute path`,
		},
		"no folder": {func(o *criproxy.Options) { o.HooksDir = "" }, "hooks-dir: is empty"},
		"itself": {
			func(o *criproxy.Options) { o.Runtime = o.Listen },
			"is the runtime's own socket",
		},
		"CRI-O under a foreign name": {
			func(o *criproxy.Options) { o.Runtime = "/var/run/crio/crio.sock" },
			"such as /run/tenon/run/crio/crio.sock: kubelets know CRI-O by it",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			if _, err := criproxy.New(o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	crio := criproxy.Options{
		Listen: "/run/tenon/run/crio/crio.sock", Runtime: "/var/run/crio/crio.sock",
		HooksDir: "/x",
	}
	if _, err := criproxy.New(crio); err != nil {
		t.Errorf("CRI-O under its own name: %v", err)
	}
}

func TestCallsUnderWayEndBeforeTheProxyDoes(t *testing.T) {
	rt := newRuntime(t)
	p := startDraining(t, newOptions(t, rt.socket), patience)
	arrived, release := make(chan struct{}), make(chan struct{})
	rt.on(cri.RuntimeService_ExecSync_FullMethodName, func(s grpc.ServerStream) error {
		close(arrived)
		<-release
		w := wire("done")
		return s.SendMsg(&w)
	})
	conn := connect(t, p.socket)
	type result struct {
		out []wire
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, _, _, err := call(context.Background(), conn, cri.RuntimeService_ExecSync_FullMethodName, wire{})
		done <- result{out, err}
	}()
	<-arrived
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	eventually(t, "no client can connect", func() error {
		if _, err := os.Stat(p.socket); err == nil {
			return os.ErrExist
		}
		return nil
	})
	close(release)
	if got := <-done; got.err != nil || len(got.out) != 1 || string(got.out[0]) != "done" {
		t.Errorf("the call under way: got %q, %v, want done", got.out, got.err)
	}
	<-stopped
}

// A scheduler keeps exclusive pods off a node whose agent knows of no proxy: the proxy must not wait for such a pod.
func TestAHookServerKnowsTheProxyBeforeAContainerStarts(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	kubelet := p.kubelet(t)
	greeted := func(agent string) {
		t.Helper()
		before := h.greetings.Load()
		eventually(t, agent+" is greeted", func() error {
			if _, err := kubelet.Version(t.Context(), &cri.VersionRequest{}); err != nil {
				return err
			}
			if h.greetings.Load() == before {
				return errors.New("no call")
			}
			return nil
		})
	}
	greeted("the first agent")
	h.stop()
	h.start()
	greeted("the agent that is started anew")
}

func TestAStreamOfEventsDoesNotKeepTheProxy(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	arrived := make(chan struct{})
	rt.on(cri.RuntimeService_GetContainerEvents_FullMethodName, func(s grpc.ServerStream) error {
		close(arrived)
		<-s.Context().Done()
		return s.Context().Err()
	})
	conn := connect(t, p.socket)
	done := make(chan error, 1)
	go func() {
		_, _, _, err := call(context.Background(), conn, cri.RuntimeService_GetContainerEvents_FullMethodName, wire{})
		done <- err
	}()
	<-arrived
	p.stop()
	if err := <-done; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
		t.Errorf("got %v, want Unavailable or Canceled", err)
	}
}

func TestTheProxyListensOnlyWhenItKnowsTheRuntime(t *testing.T) {
	rt := newRuntime(t)
	rt.stop()
	dir := folder(t)
	o := criproxy.Options{Listen: filepath.Join(dir, "cri.sock"), Runtime: rt.socket, HooksDir: dir}
	p, err := criproxy.New(o)
	testkit.Check(t, err)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- p.Run(ctx, func() { close(ready) }) }()
	eventually(t, "the proxy has its lock", func() error {
		_, err := os.Stat(o.Listen + ".lock")
		return err
	})
	if _, err := os.Stat(o.Listen); err == nil {
		t.Error("the socket is there, but the runtime is not")
	}
	rt.start()
	<-ready
	if _, err := os.Stat(o.Listen); err != nil {
		t.Errorf("the proxy is ready, but: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}

	// And it ends while it waits.
	rt.stop()
	if p, err = criproxy.New(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { done <- p.Run(ctx, func() { t.Error("ready without a runtime") }) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended while it waited: %v", err)
	}
}

// Another process removes the socket, or its folder: kubelets that reconnect find it again, and calls under way are not
// affected.
func TestASocketThatIsRemovedIsMadeAgain(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	before := p.kubelet(t)
	version := func(c cri.RuntimeServiceClient) error {
		return second(c.Version(t.Context(), &cri.VersionRequest{}))
	}
	testkit.Check(t, version(before))
	for what, remove := range map[string]func() error{
		"the socket": func() error { return os.Remove(p.socket) },
		"the folder": func() error { // at once, as it is made again meanwhile
			away := filepath.Join(folder(t), "away")
			return os.Rename(filepath.Dir(p.socket), away)
		},
	} {
		testkit.Check(t, remove())
		eventually(t, what+" is there again", func() error { return socket.Probe(t.Context(), p.socket) })
		if f, err := os.Stat(p.socket); err != nil || f.Mode().Perm() != 0o600 {
			t.Errorf("%s: got %v, %v, want mode 600", what, f, err)
		}
		if err := version(p.kubelet(t)); err != nil {
			t.Errorf("a new connection, %s removed: %v", what, err)
		}
		if err := version(before); err != nil {
			t.Errorf("an old connection, %s removed: %v", what, err)
		}
	}
	p.stop()
	if _, err := os.Stat(p.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: got %v, want no socket", err)
	}
}

// A container that is refused after its start is stopped, although the proxy is shutting down and its caller is gone.
func TestAProxyThatEndsStopsWhatIsRefusedAfterItsStart(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	p.register(t, "a.json", h.registration(criproxy.Ignore))
	c := p.kubelet(t)
	_, container := runPod(t, c, podConfig("a", exclusive()...))
	p.SetHookLimit(patience)
	arrived, release := make(chan struct{}), make(chan struct{})
	h.answer(func(_ context.Context, hook string) (*v1alpha1.ContainerResourceHookResponse, error) {
		if hook != "PostStartContainer" {
			return &v1alpha1.ContainerResourceHookResponse{}, nil
		}
		close(arrived)
		<-release
		return nil, status.Error(codes.FailedPrecondition, "it runs elsewhere")
	})
	started := make(chan error, 1)
	go func() {
		started <- second(c.StartContainer(context.Background(), &cri.StartContainerRequest{ContainerId: container}))
	}()
	<-arrived
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	if err := <-started; status.Code(err) != codes.Unavailable {
		t.Errorf("the caller got %v, want Unavailable: the proxy has ended", err)
	}
	close(release)
	<-stopped
	sees(t, rt, cri.RuntimeService_StopContainer_FullMethodName, &cri.StopContainerRequest{ContainerId: container})
}

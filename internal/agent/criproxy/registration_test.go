package criproxy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tenon-project/tenon/internal/agent/criproxy"
	"github.com/tenon-project/tenon/internal/testkit"
)

const hookList = "PreRunPodSandbox, PostStopPodSandbox, PreCreateContainer, PreStartContainer, PostStartContainer, " +
	"PreUpdateContainerResources, PostStopContainer"

func TestRegistrations(t *testing.T) {
	cases := map[string]struct {
		content string
		want    criproxy.Registration
		err     []string // parts of the error
	}{
		"as Koordinator writes it": {
			content: `{"remote-endpoint":"/var/run/koordlet/koordlet.sock","failure-policy":"Ignore",` +
				`"runtime-hooks":["PreRunPodSandbox","PreStartContainer"]}`,
			want: criproxy.Registration{
				Endpoint: "/var/run/koordlet/koordlet.sock", Policy: criproxy.Ignore,
				Hooks: []criproxy.Hook{criproxy.PreRunPodSandbox, criproxy.PreStartContainer},
			},
		},
		"an endpoint with its scheme, and a policy of one hook": {
			content: `{"remote-endpoint":"unix:///run/x.sock","failure-policy":"Fail",` +
				`"runtime-hooks":["PostStopContainer"],` +
				`"failure-policies":{"PostStopContainer":"Ignore"}}`,
			want: criproxy.Registration{
				Endpoint: "/run/x.sock", Policy: criproxy.Fail, Hooks: []criproxy.Hook{criproxy.PostStopContainer},
				Policies: map[criproxy.Hook]criproxy.Policy{criproxy.PostStopContainer: criproxy.Ignore},
			},
		},
		"everything wrong at once": {
			content: `{"remote-endpoint":"localhost:80","failure-policy":"fail",` +
				`"runtime-hooks":["PreCreatePodSandbox"],` +
				`"failure-policies":{"PostStopContainer":"None"}}`,
			err: []string{
				`remote-endpoint: "localhost:80": want the absolute path of a unix socket`,
				`failure-policy: "fail": want Fail or Ignore`,
				`runtime-hooks[0]: "PreCreatePodSandbox": want one of ` + hookList,
				`failure-policies: "PostStopContainer": want one of runtime-hooks`,
				`failure-policies[PostStopContainer]: "None": want Fail or Ignore`,
			},
		},
		"nothing in it": {
			content: `{}`,
			err: []string{
				`remote-endpoint: "": want the absolute path`, `failure-policy: "": want Fail or Ignore`,
				"runtime-hooks: is empty, want some of " + hookList,
			},
		},
		"a path that no socket can have": {
			content: `{"remote-endpoint":"/` + strings.Repeat("x", 107) +
				`","failure-policy":"Fail","runtime-hooks":["PostStopContainer"]}`,
			err: []string{"has 108 bytes, want 107 or less"},
		},
		"an unknown field": {
			content: `{"remote_endpoint":"/run/x.sock"}`,
			err: []string{
				`unknown field "remote_endpoint"`,
				"want an object of remote-endpoint, failure-policy, runtime-hooks",
			},
		},
		"a field of another type": {content: `{"runtime-hooks":"PreStartContainer"}`, err: []string{"runtime-hooks"}},
		"no JSON":                 {content: `remote-endpoint: /run/x.sock`, err: []string{"want an object"}},
		"an empty file":           {content: ``, err: []string{"want an object"}},
		"two values": {content: `{"remote-endpoint":"/x","failure-policy":"Fail",` +
			`"runtime-hooks":["PostStopContainer"]} {}`, err: []string{"more than one JSON value"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "some.json")
			testkit.Check(t, os.WriteFile(path, []byte(c.content), 0o600))
			got, err := criproxy.ReadRegistration(path)
			if len(c.err) == 0 {
				testkit.Check(t, err)
				if diff := cmp.Diff(&c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				return
			}
			if err == nil {
				t.Fatalf("got %+v, want an error", got)
			}
			for _, part := range append(c.err, path) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q:\n%v", part, err)
				}
			}
		})
	}
}

func FuzzRegistration(f *testing.F) {
	f.Add(
		[]byte(
			`{"remote-endpoint":"/run/x.sock","failure-policy":"Fail","runtime-hooks":["PreStartContainer"],` +
				`"failure-policies":{"PreStartContainer":"Ignore"}}`))
	f.Add([]byte(`{"remote-endpoint":"unix:/","runtime-hooks":null}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := criproxy.ParseRegistration(content)
		if err != nil {
			return
		}
		if !filepath.IsAbs(r.Endpoint) || len(r.Hooks) == 0 || r.Policy != criproxy.Fail &&
			r.Policy != criproxy.Ignore {
			t.Errorf("%q gives %+v", content, r)
		}
	})
}

func TestAChangeOfTheHooksFolderCountsFromTheNextCallOn(t *testing.T) {
	rt, one, two := newRuntime(t), newHooks(t), newHooks(t)
	p := newProxy(t, rt.socket)
	c := p.kubelet(t)
	asked := func() [2]int {
		t.Helper()
		before := [2]int{len(one.askedPods("PreRunPodSandbox")), len(two.askedPods("PreRunPodSandbox"))}
		if _, err := c.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: podConfig("a")}); err != nil {
			t.Fatal(err)
		}
		return [2]int{
			len(one.askedPods("PreRunPodSandbox")) - before[0],
			len(two.askedPods("PreRunPodSandbox")) - before[1],
		}
	}
	expect := func(when string, want [2]int) {
		t.Helper()
		if got := asked(); got != want {
			t.Errorf("%s: the servers were asked %v times, want %v", when, got, want)
		}
	}
	expect("no file", [2]int{0, 0})
	p.register(t, "one.json", one.registration(criproxy.Ignore))
	expect("one file", [2]int{1, 0})
	p.register(t, "two.json", two.registration(criproxy.Ignore))
	expect("two files", [2]int{1, 1})
	p.register(t, "one.json", `{"remote-endpoint":`)
	expect("a file that became unreadable keeps its last meaning", [2]int{1, 1})
	p.register(t, "one.json", two.registration(criproxy.Ignore))
	expect("a file that names another server", [2]int{0, 2})
	testkit.Check(t, os.Remove(filepath.Join(p.hooks, "one.json")))
	expect("a file less", [2]int{0, 1})
	p.register(t, "three.json",
		`{"remote-endpoint":"/x","failure-policy":"Sometimes","runtime-hooks":["PreRunPodSandbox"]}`)
	p.register(t, "three.yaml", one.registration(criproxy.Fail))
	p.register(t, ".three.json", one.registration(criproxy.Fail))
	expect("files that register nothing", [2]int{0, 1})
	testkit.Check(t, os.RemoveAll(p.hooks))
	expect("no folder", [2]int{0, 0})
}

// A registration that cannot be read registers no server, so that pods that must be enforced do not pass.
func TestAMalformedRegistrationHoldsBackWhatMustBeEnforced(t *testing.T) {
	rt := newRuntime(t)
	p := newProxy(t, rt.socket)
	p.register(t, "tenon-agent.json", `{}`)
	_, err := p.kubelet(t).RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: podConfig("a", exclusive()...)})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), p.hooks) {
		t.Errorf("got %v, want FailedPrecondition with the folder's name", err)
	}
}

// A file without an end, such as a pipe, blocks no call.
func TestOnlyRegularFilesAreRegistrations(t *testing.T) {
	rt, h := newRuntime(t), newHooks(t)
	p := newProxy(t, rt.socket)
	testkit.Check(t, unix.Mkfifo(filepath.Join(p.hooks, "a.json"), 0o600))
	large, err := os.Create(filepath.Join(p.hooks, "b.json"))
	testkit.Check(t, err)
	testkit.Check(t, errors.Join(large.Truncate(1<<40), large.Close()))
	p.register(t, "c.json", h.registration(criproxy.Ignore))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := p.kubelet(t).RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: podConfig("a")}); err != nil {
		t.Fatal(err)
	}
	if got := h.askedPods("PreRunPodSandbox"); len(got) != 1 {
		t.Errorf("the server of the good file was asked %d times, want once", len(got))
	}
	for name, want := range map[string]string{"a.json": "is not a regular file", "b.json": "is larger than"} {
		if _, err := criproxy.ReadRegistration(filepath.Join(p.hooks, name)); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}

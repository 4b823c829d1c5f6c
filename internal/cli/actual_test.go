package cli

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/tenon-project/tenon/api/node/v1alpha2"

	"github.com/tenon-project/tenon/internal/view"
)

// kept is a pod whose container has what is wanted.
func kept() *view.Cgroups {
	return &view.Cgroups{
		Namespace: "default", Name: "lse", UID: "uid-lse", Node: "epyc", Mode: "Own", Cgroup: "v2",
		Read: born.Add(time.Minute),
		Groups: []view.Cgroup{
			{Path: "/sys/fs/cgroup/kubepods/poduid-lse", Values: []view.CgroupValue{
				{
					File: "cpu.max", Want: "max", Got: "max 100000", State: view.Matches,
					Cause: "no quota beside a cpuset",
				},
			}},
			{Container: "app", Path: "/sys/fs/cgroup/kubepods/poduid-lse/c1", Values: []view.CgroupValue{
				{
					File: "cpu.max", Want: "max", Got: "max 100000", State: view.Matches,
					Cause: "no quota beside a cpuset",
				},
				{
					File: "cpuset.cpus", Want: "0-2,32-33", Got: "0-2,32-33", Effective: "0-2,32-33",
					State: view.Matches, Cause: "CPUs of the pod's allocation",
				},
			}},
		},
	}
}

// drifted is a pod with everything that can be wrong.
func drifted() *view.Cgroups {
	repaired := born.Add(3 * time.Minute)
	return &view.Cgroups{
		Namespace: "default", Name: "lse", UID: "uid-lse", Node: "epyc", Mode: "Own", Cgroup: "v1",
		Read: born.Add(time.Minute),
		Groups: []view.Cgroup{
			{
				Container: "app", Path: "/sys/fs/cgroup/cpuset/kubepods/poduid-lse/c1",
				Values: []view.CgroupValue{
					{
						File: "cpuset.cpus", Want: "0-2,32-33", Got: "0-63", Effective: "0-63", State: view.Differs,
						Cause: "CPUs of the pod's allocation",
					},
					{
						File: "cpuset.mems", Want: "0", Got: "0-1", State: view.Differs,
						Cause: "NUMA nodes of the pod's memory", AtCreation: true,
					},
				},
				Drift: &view.Drift{
					File: "cpuset.cpus", Want: "0-2,32-33", Got: "0-63",
					Seen: born.Add(4 * time.Minute),
				},
			},
			{
				Container: "side", Path: "/sys/fs/cgroup/cpuset/kubepods/poduid-lse/c2",
				Values: []view.CgroupValue{{
					File: "cpuset.cpus", Want: "0-2,32-33", Got: "0-2,32-33", Effective: "0-1",
					State: view.Differs, Cause: "CPUs of the pod's allocation",
				}},
				Drift: &view.Drift{
					File: "cpuset.cpus", Want: "0-2,32-33", Got: "", Seen: born.Add(2 * time.Minute),
					Repaired: &repaired,
				},
			},
			{Container: "late", Path: "/sys/fs/cgroup/cpuset/kubepods/poduid-lse/c3", Values: []view.CgroupValue{
				{File: "cpuset.cpus", State: view.Unmanaged, Cause: "must not run: UnallocatedExclusivePod"},
			}},
			{Container: "torn", Path: "/sys/fs/cgroup/cpuset/kubepods/poduid-lse/c4", Values: []view.CgroupValue{
				{File: "cpuset.cpus", Want: "4", State: view.Unreadable, Error: "permission denied"},
			}},
			{Container: "ended", Path: "/sys/fs/cgroup/cpuset/kubepods/poduid-lse/c5", Gone: true},
		},
		Notes: []string{"a note of the agent"},
	}
}

// simulatedKubelet serves what the agent of node epyc says.
func simulatedKubelet(t *testing.T) *net.TCPAddr {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+view.CgroupsPattern, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("the kubelet is shown a credential")
		}
		if r.PathValue("name") != "lse" {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"no such pod here"}`))
			return
		}
		if err := json.NewEncoder(w).Encode(kept()); err != nil {
			t.Error(err)
		}
	})
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr)
}

// agentPod is the pod of the agent of node epyc.
func agentPod() corev1.Pod {
	p := pod("tenon-agent-x", "", "", "epyc", "")
	p.Namespace = agentNamespace
	p.Status.Phase = corev1.PodRunning
	return p
}

// forwarding is an API server that forwards ports of pods to a backend, as the real one does.
func forwarding(t *testing.T, pods []corev1.Pod, topologies []v1alpha2.NodeResourceTopology, nodes []corev1.Node,
	backend string,
) *httptest.Server {
	t.Helper()
	plain := apiServer(t, nodes, pods, topologies)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/portforward") {
			plain.Config.Handler.ServeHTTP(w, r)
			return
		}
		if backend == "" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(
				`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
					`"message":"User cannot create resource \"pods/portforward\" in the namespace ` +
					`\"tenon-system\""}`))
			return
		}
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			t.Error(err)
			return
		}
		connection := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
			func(stream httpstream.Stream, _ <-chan struct{}) error {
				if stream.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
					go relay(t, stream, backend)
				}
				return nil
			})
		if connection != nil {
			<-connection.CloseChan()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// relay copies both ways until one side ends.
func relay(t *testing.T, stream httpstream.Stream, backend string) {
	t.Helper()
	to, err := new(net.Dialer).DialContext(t.Context(), "tcp", backend)
	if err != nil {
		t.Error(err)
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, stream) }()
	_, _ = io.Copy(stream, to)
	_ = stream.Close()
}

func TestTheAgentIsAskedThroughItsPod(t *testing.T) {
	nodes, pods, topologies := example(t)
	pods = append(pods, agentPod())
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case view.CgroupsPath("default", "lse"):
			_, _ = w.Write([]byte(
				`{"uid":"uid-lse","groups":[{"container":"app","path":"/g","values":[{"file":"cpuset.cpus",` +
					`"want":"1","got":"2","state":"differs","cause":"c"}]}]}`))
		case view.CgroupsPath("default", "lsr"):
			_, _ = w.Write([]byte(`{"uid":"another"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"message":"no pod default/web runs here"}`))
		}
	}))
	t.Cleanup(agent.Close)
	api := forwarding(t, pods, topologies, nodes, agent.Listener.Addr().String())
	refuses := forwarding(t, pods, topologies, nodes, "")
	for name, c := range map[string]struct{ pod, server, want string }{
		"it answers":           {"lse", api.URL, "app: cpuset.cpus 2, wanted 1 (c)"},
		"it knows another pod": {"lsr", api.URL, "unknown: the agent reports another pod of that name"},
		"it does not know it":  {"web", api.URL, "unknown: error from the agent: no pod default/web runs here"},
		"the right is not there": {
			"lse", refuses.URL,
			"unable to upgrade connection: User cannot create resource \"pods/portforward\" in the namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := run(t, "tenon", "explain", c.pod, "--kubeconfig", kubeconfig(t, c.server))
			if code != ExitOK || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %q in\n%s%s", code, c.want, out, errOut)
			}
		})
	}
}

func TestAKubeletThatIsNowhereIsANote(t *testing.T) {
	nodes, pods, topologies := example(t)
	api := apiServer(t, nodes, pods, topologies)
	code, out, _ := run(t, "tenon", "explain", "pinned", "--kubeconfig", kubeconfig(t, api.URL, "http://127.0.0.1:1"))
	if code != ExitOK || !strings.Contains(out, "node static does not say where its kubelet listens") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestAnAgentThatEndsIsNotAsked(t *testing.T) {
	nodes, pods, topologies := example(t)
	ending := agentPod()
	now := metav1.NewTime(born)
	ending.DeletionTimestamp, ending.Finalizers = &now, []string{"x/y"}
	api := apiServer(t, nodes, append(pods, ending), topologies)
	_, out, _ := run(t, "tenon", "explain", "lse", "--kubeconfig", kubeconfig(t, api.URL))
	if !strings.Contains(out, "no agent runs on node epyc") {
		t.Errorf("want that no agent runs there:\n%s", out)
	}
}

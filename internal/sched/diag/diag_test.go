package diag

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// example is the machine of seed 000's worked example: 2 sockets, 4 NUMA nodes, 16 cores of 2 threads (c and c+16); the
// kubelet keeps CPUs 0 and 16, an LSE pod holds 1 and 17, an LSR pod 2 and 18.
func example(t *testing.T) *ledger.View {
	t.Helper()
	m := grid.Worked().Build(t)
	f := ledger.Facts{
		Machine: m, MinSharedCPUs: -1, Topology: hint.Restricted,
		Model: kubelet.Facts{Config: kubelet.Config{
			CPU: kubelet.CPU{Static: true, FullPCPUsOnly: true, Reserved: cpuset.MustParse("0,16")},
		}},
	}
	return ledger.New(f,
		ledger.Entry{
			UID: "u-lse", Namespace: "default", Name: "lse", Class: qos.LSE, Role: qos.Exclusive,
			CPUList: "1,17", Exclusive: cpualloc.PCPULevel,
		},
		ledger.Entry{
			UID: "u-lsr", Namespace: "secret", Name: "lsr", Class: qos.LSR, Role: qos.ExclusiveWithBE,
			CPUList: "2,18",
		},
	).View()
}

func boundPod() *corev1.Pod {
	p := object.Pod("lse", object.UID("u-lse"), object.Class("LSE"), object.On("node-1"),
		object.Scheduler("tenon-scheduler"), object.Container("app", "app:1"), object.Requests("cpu", "2"))
	c := &p.Spec.Containers[0]
	c.Env, c.Command = []corev1.EnvVar{{Name: "TOKEN", Value: "hush"}}, []string{"run"}
	c.Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}
	return p
}

// cluster is a scheduler that knows these nodes and pods.
type cluster struct {
	passive  bool // it does not lead
	ready    error
	accounts map[string]*ledger.View
	node     fwk.NodeInfo
	pods     map[string]*corev1.Pod
	verdicts map[string]view.Verdict // by the pod's name
	claims   []view.HeldClaim
}

func (c *cluster) Leading() bool                              { return !c.passive }
func (c *cluster) Ready() error                               { return c.ready }
func (c *cluster) View(node string) *ledger.View              { return c.accounts[node] }
func (c *cluster) NodeInfo(node string) (fwk.NodeInfo, bool)  { return c.node, node == "node-1" }
func (c *cluster) Pod(namespace, name string) *corev1.Pod     { return c.pods[namespace+"/"+name] }
func (c *cluster) Claims(*corev1.Pod) []view.HeldClaim        { return c.claims }
func (c *cluster) RemainingBackoff(*corev1.Pod) time.Duration { return 30 * time.Second }
func (c *cluster) Configuration() (*view.Configuration, error) {
	return &view.Configuration{Settings: []view.Setting{{Field: "a", Value: "1", Origin: "default"}}}, nil
}

func (c *cluster) Queue(*corev1.Pod) *view.Queue {
	return &view.Queue{Place: "unschedulable", Attempts: 6}
}

func (c *cluster) Evaluate(_ context.Context, pod *corev1.Pod) (view.Verdict, error) {
	if out, ok := c.verdicts[pod.Name]; ok {
		return out, nil
	}
	return view.Verdict{}, errors.New("the snapshot is broken")
}

// questions answers by the mode of a question, and looks for fixes with a function.
type questions struct {
	fixes func(pod *corev1.Pod, said *view.Pod) ([]view.Fix, *view.FixSearch, error)
}

func (questions) Answer(_ context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error) {
	switch q.Ask.Mode {
	case view.PlayForward:
		return &view.WhatIfAnswer{Forecast: &view.Forecast{Queue: []view.WaitingUnit{
			{Position: 1, Name: "pod/secret/x", Pods: []string{"secret/x"}},
			{Position: 2, Name: "pod/default/waits", Pods: []string{"default/waits"}, Start: &view.ExpectedStart{
				State: view.StartUnknown, After: []string{"job/secret/y", "job/default/z"},
			}},
		}}}, nil
	case "bad":
		return nil, fmt.Errorf("changes[0]: %w", &whatif.BadQuestion{Text: "it makes no sense"})
	case "busy":
		return nil, whatif.Busy{}
	case "broken":
		return nil, errors.New("the snapshot is broken")
	}
	return &view.WhatIfAnswer{
		SnapshotGeneration: 3, Placements: []view.WhatIfPlacement{}, Unschedulable: []view.Pod{},
		Victims: []view.Victim{
			{Pod: "default/a", Node: "n", For: "x"}, {Pod: "secret/b", Node: "n", For: "x"},
		},
	}, nil
}

func (q questions) Fixes(_ context.Context, pod *corev1.Pod, said *view.Pod) ([]view.Fix, *view.FixSearch, error) {
	return q.fixes(pod, said)
}

// journalOf is a journal of one file, or one that cannot be read.
type journalOf struct{ err error }

func (j journalOf) File(name string) (found, earlier string, text []byte, err error) {
	if name == "journal-0.jsonl" {
		return "", "", nil, j.err
	}
	return "journal-2.jsonl", "journal-1.jsonl", []byte("{}\n"), j.err
}

// counter is a plugin with diagnostics of its own.
type counter struct{}

func (counter) Name() string { return "Counter" }

// ExplainDevices says of a bound pod that there was one set.
func (counter) ExplainDevices(_ *corev1.Pod, into *view.Pod) {
	if into.Placement != nil && into.Pod == "default/lse" {
		into.Placement.Choice = &view.DeviceChoice{Sets: []view.DeviceSet{}}
	}
}

func (counter) Diagnostics() Service {
	return Service{Aliases: []string{"Counters"}, Endpoints: []Endpoint{
		{Path: "load/{name}", Names: NamesNode, Answer: func(r *http.Request, _ func(string) bool) any {
			return r.PathValue("name")
		}},
		{Path: "pods/{nodeName}", Answer: func(r *http.Request, mayRead func(string) bool) any {
			if r.PathValue("nodeName") == "nope" {
				return nil
			}
			return map[string]bool{"default": mayRead("default"), "secret": mayRead("secret")}
		}},
		{Path: "total", Answer: func(*http.Request, func(string) bool) any { return 7 }},
	}}
}

// allow is an authorizer that lets the caller get what f says.
func allow(f func(a authorizer.Attributes) bool) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string,
		error,
	) {
		if a.GetVerb() == "get" && a.GetAPIGroup() == "" && a.IsResourceRequest() && f(a) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

func config(t *testing.T) Config {
	account := example(t)
	pending := boundPod()
	pending.Name, pending.UID, pending.Spec.NodeName = "waits", "u-waits", ""
	broken := pending.DeepCopy()
	broken.Name = "broken"
	rejected := boundPod()
	rejected.Name, rejected.UID = "rejected", "u-rejected"
	rejected.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SMTAlignmentError", Message: "odd"}
	pods := map[string]*corev1.Pod{
		"default/rejected": rejected, "default/lse": boundPod(), "default/waits": pending,
		"default/broken": broken,
	}
	node := framework.NewNodeInfo(boundPod())
	bound := object.Node("node-1", nil, "cpu", "32", "memory", "64Gi", "pods", "110")
	bound.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	node.SetNode(bound)
	node.Generation = 42
	ring := &Ring{}
	ring.Add(view.Decision{
		Pod: "default/lse", UID: "u-lse", Profile: "tenon-scheduler", Time: time.Unix(1700000000, 0).UTC(),
		Node: "node-1", Feasible: 2, Of: 3,
		Scores: []view.Score{{
			Node: "node-1", Total: 7,
			Plugins: []view.PluginScore{{Name: "NodeNUMAResource", Score: 7, Normalized: 7, Weight: 1}},
		}},
	})
	return Config{
		Scheduler: &cluster{
			accounts: map[string]*ledger.View{
				"node-1": account,
				"bare":   ledger.New(ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}}).View(),
			},
			node: node, pods: pods,
			verdicts: map[string]view.Verdict{"waits": {
				Served: true, Nodes: 3, Generation: 9,
				Findings: []why.Finding{
					{
						Reason: why.Reason{Code: why.SMTAlignment, Asked: 3, Extra: 2}, Plugin: "NodeNUMAResource",
						Phase: why.Filter, Object: "node-1",
					},
					{
						Reason: why.Reason{Code: why.SMTAlignment, Asked: 3, Extra: 2}, Plugin: "NodeNUMAResource",
						Phase: why.Filter, Object: "node-2",
					},
					{
						Reason: why.Reason{
							Code: why.InsufficientCPU, Resource: why.CPU, Unit: why.MilliCPU, Asked: 3000,
							Free: 2500,
						},
						Plugin: "NodeResourcesFit", Phase: why.Filter, Object: "node-3",
					},
				},
			}},
		},
		WhatIf: questions{}, Plugins: []fwk.Plugin{counter{}}, Decisions: ring, Flags: &Flags{},
	}
}

func serve(t *testing.T, c Config) http.Handler {
	t.Helper()
	h, err := New(c)
	testkit.Check(t, err)
	return h
}

func ask(h http.Handler, method, path, body string) (status int, answer, contentType string) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, strings.NewReader(body))
	h.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "someone"})))
	text, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(text), w.Header().Get("Content-Type")
}

func TestWhatIfOverHTTP(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Authorizer = allow(func(a authorizer.Attributes) bool {
		return a.GetResource() == "pods" && a.GetNamespace() == "default" ||
			a.GetResource() == "nodes" && a.GetName() == "n"
	})
	h := serve(t, c)
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{"ask":{"pods":["default/a"]}}`: {200, `{"snapshotGeneration":3,"placements":[],"unschedulable":[],` +
			`"victims":[{"pod":"default/a","node":"n","for":"x"}],"victimsHidden":1}`},
		`{"ask":{"pods":["secret/b"]}}`:                                 {403, "namespace secret cannot be read"},
		`{"changes":[{"removePod":"secret/b"}]}`:                        {403, "pods in namespace secret"},
		`{"changes":[{"addPod":{"metadata":{"namespace":"secret"}}}]}`:  {403, "pods in namespace secret"},
		`{"changes":[{"addPod":{"metadata":{"name":"x"}}}]}`:            {200, "placements"},
		`{"changes":[{"scaleGang":{"gang":"secret/g","to":2}}]}`:        {403, "pods in namespace secret"},
		`{"changes":[{"setQuota":{"name":"q"}}]}`:                       {403, "pods of all namespaces"},
		`{"ask":{"mode":"defragment"}}`:                                 {403, "pods of all namespaces"},
		`{"changes":[{"cordon":"m"}]}`:                                  {403, "node m cannot be read"},
		`{"changes":[{"cordon":"n"},{"addNode":{"like":"m"}}]}`:         {403, "node m cannot be read"},
		`{"ask":{"mode":"bad"}}`:                                        {400, "changes[0]: it makes no sense"},
		`{"ask":{"mode":"busy"}}`:                                       {429, "ask again"},
		`{"ask":{"mode":"broken"}}`:                                     {500, "the snapshot is broken"},
		`{"asks":{}}`:                                                   {400, `unknown field \"asks\"`},
		`{}{}`:                                                          {400, "more than one JSON value"},
		``:                                                              {400, "read the question: EOF"},
		`{"ask":{"mode":"` + strings.Repeat("x", maxWhatIfBody) + `"}}`: {413, "request body too large"},
	} {
		status, answer, _ := ask(h, http.MethodPost, "/apis/v1/whatif", body)
		if status != want.status || !strings.Contains(answer, want.text) {
			t.Errorf("POST %.80s: got %d %s, want %d with %q", body, status, answer, want.status, want.text)
		}
	}
	if status, answer, _ := ask(h, http.MethodGet, "/apis/v1/whatif", ""); status != 405 ||
		!strings.Contains(answer, "use POST") {
		t.Errorf("GET: got %d %s, want 405", status, answer)
	}
	if _, services, _ := ask(h, http.MethodGet, "/apis/v1/__services__", ""); !strings.Contains(services,
		`"POST":["/apis/v1/whatif"]`) {
		t.Errorf("services %s do not list the path", services)
	}
}

func TestFixesAreAnsweredWhenAskedFor(t *testing.T) {
	t.Parallel()
	c := config(t)
	fail, calls := error(nil), 0
	c.WhatIf = questions{func(pod *corev1.Pod, said *view.Pod) ([]view.Fix, *view.FixSearch, error) {
		if calls++; said.Pod != "default/"+pod.Name {
			t.Errorf("asked about %s with what is said of %s", pod.Name, said.Pod)
		}
		return []view.Fix{{Kind: view.FixNode, Message: "uncordon node a"}}, &view.FixSearch{Runs: 2}, fail
	}}
	h, err := New(c)
	testkit.Check(t, err)
	const path = "/apis/v1/explain/pods/default/waits"
	for _, tt := range []struct {
		query, want string
		fails       error
		status      int
		calls       int
	}{
		{"", `"data":`, nil, 200, 0},
		{"?fixes=false", `"data":`, nil, 200, 0},
		{"?fixes=true", `"fixes":[{"kind":"RelaxNode","message":"uncordon node a"}],"search":{"runs":2}`, nil, 200, 1},
		{
			"?fixes=true", `"expected":{"state":"Unknown","after":["job/secret/y","job/default/z"]},"place":"2 of 2"`,
			nil, 200, 1,
		},
		{"?fixes=true", `"search":{"runs":0,"note":"no fix was looked for: busy"}`, errors.New("busy"), 200, 1},
		{"?fixes=some", `{"message":"fixes=some is not allowed: use true or false"}`, nil, 400, 0},
	} {
		fail, calls = tt.fails, 0
		status, body, _ := ask(h, http.MethodGet, path+tt.query, "")
		if status != tt.status || !strings.Contains(body, tt.want) || calls != tt.calls {
			t.Errorf("%q: got %d %s after %d calls, want %d with %s after %d", tt.query, status, body, calls, tt.status,
				tt.want, tt.calls)
		}
	}
}

// TestFixesNameNoPodThatTheCallerMayNotRead: neither by a pod that goes, nor by what the pods of other quotas use.
func TestFixesNameNoPodThatTheCallerMayNotRead(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.WhatIf = questions{func(*corev1.Pod, *view.Pod) ([]view.Fix, *view.FixSearch, error) {
		return []view.Fix{
			{Kind: view.FixEvict, Message: "one", Changes: []view.Change{{RemovePod: "secret/a"}}},
			{Kind: view.FixWait, Message: "two", Changes: []view.Change{
				{RemovePod: "default/b"}, {RemovePod: "secret/c"},
			}},
			{Kind: view.FixEvict, Message: "three", Changes: []view.Change{{RemovePod: "default/d"}}},
			{Kind: view.FixQuota, Message: "four"},
		}, &view.FixSearch{}, nil
	}}
	for name, tt := range map[string]struct {
		namespaces []string
		want       []string
	}{
		"one namespace": {[]string{"default"}, []string{"three"}},
		"all":           {[]string{"default", "secret", ""}, []string{"one", "two", "three", "four"}},
	} {
		c.Authorizer = allow(func(a authorizer.Attributes) bool {
			return a.GetResource() != "pods" || slices.Contains(tt.namespaces, a.GetNamespace())
		})
		status, body, _ := ask(serve(t, c), http.MethodGet, "/apis/v1/explain/pods/default/waits?fixes=true", "")
		var got []string
		for _, message := range []string{"one", "two", "three", "four"} {
			if strings.Contains(body, `"message":"`+message+`"`) {
				got = append(got, message)
			}
		}
		if status != http.StatusOK || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %d with the fixes %v, want %v", name, status, got, tt.want)
		}
	}
}

func TestBodiesByteByByte(t *testing.T) {
	t.Parallel()
	h := serve(t, config(t))
	for path, want := range map[string]string{
		"/apis/v1/__services__": `{"GET":["/apis/v1/__services__","/apis/v1/configuration","/apis/v1/decisions",` +
			`"/apis/v1/explain/pods/:namespace/:name",` +
			`"/apis/v1/explain/pods/:namespace/:name/hints/:nodeName","/apis/v1/nodes/:nodeName",` +
			`"/apis/v1/plugins/Counter/explain","/apis/v1/plugins/Counter/load/:name",` +
			`"/apis/v1/plugins/Counter/pods/:nodeName",` +
			`"/apis/v1/plugins/Counter/total"],"POST":["/apis/v1/whatif"]}`,
		"/apis/v1/plugins/Counter/explain?namespace=default&pod=lse": `{"pod":"default/lse","state":"Bound",` +
			`"node":"node-1","deviceChoice":{"sets":[]},"candidates":[]}`,
		"/apis/v1/plugins/Counter/explain?namespace=default&pod=waits": `{"pod":"default/waits","state":"Pending",` +
			`"candidates":[{"node":"node-3","count":1,"reasons":[{"code":"InsufficientCPU","class":"Capacity",` +
			`"plugin":"NodeResourcesFit","phase":"Filter","params":{"asked":3000,"free":2500,"resource":"cpu",` +
			`"unit":"milliCPU"},"message":"Insufficient cpu","haveNeed":"2.5/3 CPUs"}],"closest":"2.5/3 CPUs"},` +
			`{"node":"node-1","count":2,"reasons":[{"code":"SMTAlignment","class":"Placement",` +
			`"plugin":"NodeNUMAResource","phase":"Filter","params":{"asked":3,"threadsPerCore":2},"message":"node(s) ` +
			`requested cpus not multiple cpus per core"}]}]}`,
		"/apis/v1/plugins/Counter/total":       `7`,
		"/apis/v1/plugins/Counters/total":      `7`,
		"/apis/v1/plugins/Counter/pods/node-1": `{"default":true,"secret":true}`,
		"/apis/v1/explain/pods/default/rejected": `{"pod":"default/rejected","uid":"u-rejected","state":"Finished",` +
			`"scheduler":"tenon-scheduler","qos":"LSE","nodes":0,"obstacles":[],"minimalSets":[],"candidates":[],` +
			`"placement":{"node":"node-1","numa":[]},"rejection":{"node":"node-1","reason":"SMTAlignmentError",` +
			`"message":"odd","backoffSeconds":30},"data":{"source":"scheduler"},` +
			`"notes":["the decision is not among the last ones that this scheduler remembers"]}`,
		"/apis/v1/decisions?pod=default/lse": `[{"pod":"default/lse","uid":"u-lse","profile":"tenon-scheduler",` +
			`"time":"2023-11-14T22:13:20Z","node":"node-1",` +
			`"feasible":2,"of":3,"scores":[{"node":"node-1","total":7,"plugins":[{"name":"NodeNUMAResource",` +
			`"score":7,"normalized":7,"weight":1}]}]}]`,
		"/apis/v1/decisions?pod=default/other": `[]`,
		"/apis/v1/explain/pods/default/waits": `{"pod":"default/waits","uid":"u-waits","state":"Pending",` +
			`"scheduler":"tenon-scheduler","qos":"LSE","asked":"",` +
			`"queue":{"place":"unschedulable","attempts":6},` +
			`"rootCause":{"code":"SMTAlignment","class":"Placement","plugin":"NodeNUMAResource","phase":"Filter",` +
			`"nodes":2,"example":"node-1","params":{"asked":3,"threadsPerCore":2},"message":"node(s) requested cpus ` +
			`not multiple cpus per core","do":"Request a multiple of threadsPerCore in every container."},` +
			`"nodes":3,"obstacles":[` +
			`{"code":"SMTAlignment","class":"Placement","plugin":"NodeNUMAResource","phase":"Filter","nodes":2,` +
			`"example":"node-1","params":{"asked":3,"threadsPerCore":2},"message":"node(s) requested cpus not ` +
			`multiple cpus per core","do":"Request a multiple of threadsPerCore in every container."},` +
			`{"code":"InsufficientCPU","class":"Capacity","plugin":"NodeResourcesFit","phase":"Filter","nodes":1,` +
			`"example":"node-3","params":{"asked":3000,"free":2500,"resource":"cpu","unit":"milliCPU"},` +
			`"message":"Insufficient cpu","do":"Wait, free CPU, or add a node."}],` +
			`"minimalSets":[{"codes":["SMTAlignment"],"nodes":2},{"codes":["InsufficientCPU"],"nodes":1,` +
			`"missing":{"cpu":"500m"}}],` +
			`"candidates":[{"node":"node-3","count":1,"reasons":[{"code":"InsufficientCPU","class":"Capacity",` +
			`"plugin":"NodeResourcesFit","phase":"Filter","params":{"asked":3000,"free":2500,"resource":"cpu",` +
			`"unit":"milliCPU"},"message":"Insufficient cpu","haveNeed":"2.5/3 CPUs"}],"closest":"2.5/3 CPUs"},` +
			`{"node":"node-1","count":2,"reasons":[{"code":"SMTAlignment","class":"Placement",` +
			`"plugin":"NodeNUMAResource","phase":"Filter","params":{"asked":3,"threadsPerCore":2},"message":"node(s) ` +
			`requested cpus not multiple cpus per core"}]}],` +
			`"data":{"generation":9,"source":"scheduler"}}`,
		"/apis/v1/explain/pods/default/lse": `{"pod":"default/lse","uid":"u-lse","state":"Bound",` +
			`"scheduler":"tenon-scheduler","qos":"LSE","nodes":3,"obstacles":[],"minimalSets":[],"candidates":[],` +
			`"placement":{"node":"node-1","cpuset":"1,17","numa":[{"node":0,"socket":0,"cpuset":"1,17",` +
			`"cores":[{"core":1,"cpuset":"1,17","whole":true}]}],"deviceChoice":{"sets":[]}},` +
			`"decision":{"pod":"default/lse","uid":"u-lse","profile":"tenon-scheduler","time":"2023-11-14T22:13:20Z",` +
			`"node":"node-1","feasible":2,"of":3,` +
			`"scores":[{"node":"node-1","total":7,"plugins":[{"name":"NodeNUMAResource","score":7,"normalized":7,` +
			`"weight":1}]}]},` +
			`"data":{"source":"scheduler"}}`,
	} {
		want = strings.Replace(want, `"asked":"",`, "", 1)
		status, got, contentType := ask(h, http.MethodGet, path, "")
		if status != http.StatusOK || contentType != "application/json; charset=utf-8" {
			t.Errorf("GET %s: status %d, %s: %s", path, status, contentType, got)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("GET %s (-want +got):\n%s", path, diff)
		}
	}
}

func TestNodeStateHasNoEnvironmentAndNoCommands(t *testing.T) {
	t.Parallel()
	_, body, _ := ask(serve(t, config(t)), http.MethodGet, "/apis/v1/nodes/node-1", "")
	for _, secret := range []string{"hush", "TOKEN", `"command"`, "managedFields"} {
		if strings.Contains(body, secret) {
			t.Errorf("%s is in %s", secret, body)
		}
	}
	const tail = `"requested":{"cpu":"2","ephemeral-storage":"0","memory":"0","pods":"1"},` +
		`"nonZeroRequested":{"cpu":"2","ephemeral-storage":"0","memory":"200Mi"},` +
		`"allocatable":{"cpu":"32","ephemeral-storage":"0","memory":"64Gi","pods":"110"},"remaining":{"cpu":"30",` +
		`"ephemeral-storage":"0","memory":"64Gi","pods":"109"},` +
		`"usedPorts":{"0.0.0.0":["TCP/80"]},"pvcRefCounts":{},"generation":42}`
	if !strings.HasSuffix(body, tail) {
		t.Errorf("got\n%s\nwant it to end with\n%s", body, tail)
	}
}

func TestEveryListedPathAnswers(t *testing.T) {
	t.Parallel()
	h := serve(t, config(t))
	_, body, _ := ask(h, http.MethodGet, "/apis/v1/__services__", "")
	var services map[string][]string
	testkit.Check(t, json.Unmarshal([]byte(body), &services))
	for method, paths := range services {
		for _, path := range paths {
			path = strings.NewReplacer(":nodeName", "node-1", ":namespace", "default", ":name", "lse").Replace(path)
			if strings.HasSuffix(path, "/explain") {
				path += "?namespace=default&pod=lse"
			}
			if status, answer, _ := ask(h, method, path, "{}"); status != http.StatusOK {
				t.Errorf("%s %s: status %d: %s", method, path, status, answer)
			}
		}
	}
}

// TestTheConfigurationIsForThoseWhoMayGetNodes: Kubernetes gives every user the paths under /apis.
func TestTheConfigurationIsForThoseWhoMayGetNodes(t *testing.T) {
	t.Parallel()
	const found = `{"settings":[{"field":"a","value":"1","origin":"default"}],"gates":null}`
	for name, q := range map[string]struct {
		resource string
		status   int
		want     string
	}{
		"nodes": {"nodes", 200, found},
		"pods":  {"pods", 403, "the configuration cannot be read: get on nodes is missing"},
	} {
		c := config(t)
		c.Authorizer = allow(func(a authorizer.Attributes) bool {
			return a.GetResource() == q.resource && a.GetVerb() == "get" && a.GetName() == ""
		})
		status, answer, _ := ask(serve(t, c), "GET", "/apis/v1/configuration", "")
		if status != q.status || !strings.Contains(answer, q.want) {
			t.Errorf("%s: got %d %s, want %d %s", name, status, answer, q.status, q.want)
		}
	}
}

// TestTheJournalIsForThoseWhoMayReadAllPodsAndNodes: it names all of them.
func TestTheJournalIsForThoseWhoMayReadAllPodsAndNodes(t *testing.T) {
	t.Parallel()
	for name, q := range map[string]struct {
		may    []string // "namespace/resource"
		err    error
		status int
		want   string
	}{
		"all":               {[]string{"/pods", "/nodes"}, nil, 200, `{"name":"journal-2.jsonl","gzip":"`},
		"no nodes":          {[]string{"/pods"}, nil, 403, "get on nodes of all namespaces is missing"},
		"pods of one":       {[]string{"default/pods", "/nodes"}, nil, 403, "get on pods of all namespaces is missing"},
		"it cannot be read": {[]string{"/pods", "/nodes"}, errors.New("disk"), 500, "read the journal: disk"},
		"nothing":           {nil, nil, 403, "is missing"},
	} {
		c := config(t)
		c.Authorizer = allow(func(a authorizer.Attributes) bool {
			return slices.Contains(q.may, a.GetNamespace()+"/"+a.GetResource())
		})
		c.Journal = journalOf{q.err}
		status, answer, _ := ask(serve(t, c), "GET", "/apis/v1/journal", "")
		if status != q.status || !strings.Contains(answer, q.want) {
			t.Errorf("%s: got %d %s, want %d %s", name, status, answer, q.status, q.want)
		}
	}
	if status, _, _ := ask(serve(t, config(t)), "GET", "/apis/v1/journal", ""); status != http.StatusNotFound {
		t.Errorf("without a journal: status %d", status)
	}
	c := config(t)
	c.Journal = journalOf{}
	status, answer, _ := ask(serve(t, c), "GET", "/apis/v1/journal?file=journal-0.jsonl", "")
	if status != http.StatusNotFound || !strings.Contains(answer, `no file \"journal-0.jsonl\"`) {
		t.Errorf("a file that does not exist: %d %s", status, answer)
	}
	_, answer, _ = ask(serve(t, c), "GET", "/apis/v1/journal?file=journal-2.jsonl", "")
	if !strings.HasSuffix(strings.TrimSpace(answer), `"earlier":"journal-1.jsonl"}`) {
		t.Errorf("the file before is not named: %s", answer)
	}
}

func TestBadRequestsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	c := config(t)
	c.Authorizer = allow(func(a authorizer.Attributes) bool {
		return a.GetResource() == "pods" && a.GetNamespace() != "secret" ||
			a.GetResource() == "nodes" && a.GetName() != "node-2"
	})
	h := serve(t, c)
	for name, q := range map[string]struct {
		method, path string
		status       int
		want         string
	}{
		"unknown node": {"GET", "/apis/v1/nodes/nope", 404, `{"message":"cannot find node nope"}`},
		"unknown node of a plugin": {
			"GET", "/apis/v1/plugins/Counter/pods/nope", 404, `{"message":"cannot find node nope"}`,
		},
		"forbidden namespace of a plugin": {
			"GET", "/apis/v1/plugins/Counter/pods/node-1", 200, `{"default":true,"secret":false}`,
		},
		"wrong method of a plugin": {
			"POST", "/apis/v1/plugins/Counter/total", 405,
			`{"message":"method POST is not allowed on /apis/v1/plugins/Counter/total: use GET"}`,
		},
		"unknown pod": {
			"GET", "/apis/v1/explain/pods/default/nope", 404,
			`{"message":"cannot find pod default/nope"}`,
		},
		"forbidden pod": {
			"GET", "/apis/v1/explain/pods/secret/lsr", 403,
			`{"message":"pods in namespace secret cannot be read: get on pods is missing"}`,
		},
		"forbidden node": {
			"GET", "/apis/v1/nodes/node-2", 403,
			`{"message":"node node-2 cannot be read: get on nodes is missing"}`,
		},
		"forbidden node of a plugin": {
			"GET", "/apis/v1/plugins/Counter/pods/node-2", 403,
			`{"message":"node node-2 cannot be read: get on nodes is missing"}`,
		},
		"forbidden node of a plugin, by name": {
			"GET", "/apis/v1/plugins/Counter/load/node-2", 403,
			`{"message":"node node-2 cannot be read: get on nodes is missing"}`,
		},
		"broken evaluation": {
			"GET", "/apis/v1/explain/pods/default/broken", 500,
			`{"message":"evaluate pod default/broken: the snapshot is broken"}`,
		},
		"unknown path": {
			"GET", "/apis/v1/nope", 404,
			`{"message":"no such path /apis/v1/nope; /apis/v1/__services__ lists them"}`,
		},
		"devices of no pod": {
			"GET", "/apis/v1/plugins/Counter/explain?pod=lse", 400,
			`{"message":"namespace and pod are required: use ?namespace=NAMESPACE\u0026pod=NAME"}`,
		},
		"devices of a forbidden pod": {
			"GET", "/apis/v1/plugins/Counter/explain?namespace=secret&pod=lsr", 403,
			`{"message":"pods in namespace secret cannot be read: get on pods is missing"}`,
		},
		"devices of a pod that cannot be evaluated": {
			"GET", "/apis/v1/plugins/Counter/explain?namespace=default&pod=broken", 500,
			`{"message":"evaluate pod default/broken: the snapshot is broken"}`,
		},
		"pod that is not a key": {
			"GET", "/apis/v1/decisions?pod=a/b/c", 400,
			`{"message":"pod=a/b/c is not allowed: use namespace/name"}`,
		},
		"wrong method": {
			"POST", "/apis/v1/nodes/node-1", 405,
			`{"message":"method POST is not allowed on /apis/v1/nodes/node-1: use GET"}`,
		},
	} {
		if status, got, _ := ask(h, q.method, q.path, ""); status != q.status || got != q.want {
			t.Errorf("%s: got %d %s, want %d %s", name, status, got, q.status, q.want)
		}
	}
}

func TestOnlyTheLeaderAnswers(t *testing.T) {
	t.Parallel()
	c := config(t)
	scheduler := c.Scheduler.(*cluster)
	scheduler.passive, scheduler.ready = true, errors.New("nodes are not all known")
	h := serve(t, c)
	if status, body, _ := ask(h, "GET", "/apis/v1/__services__", ""); status != 503 ||
		body != `{"message": "the instance is not leader"}` {
		t.Errorf("non-leader: got %d %s", status, body)
	}
	if status, _, _ := ask(h, "PUT", "/debug/flags/s", "3"); status != 200 {
		t.Errorf("flags belong to the process, leader or not: got %d", status)
	}
	scheduler.passive = false
	if status, body, _ := ask(h, "GET", "/apis/v1/nodes/node-1", ""); status != 503 ||
		body != `{"message":"not ready: nodes are not all known"}` {
		t.Errorf("not ready: got %d %s", status, body)
	}
	scheduler.ready = nil
	if status, _, _ := ask(h, "GET", "/apis/v1/nodes/node-1", ""); status != 200 {
		t.Errorf("leader: got %d", status)
	}
}

func TestFlagsByteByByte(t *testing.T) {
	var audited []string
	c := config(t)
	c.Log = funcr.New(func(_, line string) { audited = append(audited, line) }, funcr.Options{})
	h := serve(t, c)
	for _, q := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "/debug/flags/v", "0", 200, "successfully set klog.logging.verbosity to 0\n"},
		{"PUT", "/debug/flags/v", "x", 400, "strconv.ParseUint: parsing \"x\": invalid syntax\n"},
		{"PUT", "/debug/flags/v", "-1", 400, "strconv.ParseUint: parsing \"-1\": invalid syntax\n"},
		{"PUT", "/debug/flags/s", "100", 200, "successfully set debugTopNScores to 100\n"},
		{"PUT", "/debug/flags/s", "100\n", 200, "successfully set debugTopNScores to 100\n"},
		{
			"PUT", "/debug/flags/s", "x", 400,
			"failed set debugTopNScores x: strconv.Atoi: parsing \"x\": invalid syntax\n",
		},
		{
			"PUT", "/debug/flags/s", " 5", 400,
			"failed set debugTopNScores  5: strconv.Atoi: parsing \" 5\": invalid syntax\n",
		},
		{"PUT", "/debug/flags/s", "-1", 400, "failed set debugTopNScores -1: must not be negative\n"},
		{"PUT", "/debug/flags/s", "", 400, "failed set debugTopNScores : strconv.Atoi: parsing \"\": invalid syntax\n"},
		{"PUT", "/debug/flags/f", "true", 200, "successfully set debugFilterFailure to true\n"},
		{
			"PUT", "/debug/flags/f", "yes", 400,
			"failed set debugFilterFailure yes: strconv.ParseBool: parsing \"yes\": invalid syntax\n",
		},
		{"GET", "/debug/flags/s", "", 406, "unsupported http method\n"},
		{"POST", "/debug/flags/v", "5", 406, "unsupported http method\n"},
	} {
		status, got, contentType := ask(h, q.method, q.path, q.body)
		if status != q.status || got != q.want || contentType != "text/plain" {
			t.Errorf("%s %s %q: got %d %q (%s), want %d %q", q.method, q.path, q.body, status, got, contentType,
				q.status, q.want)
		}
	}
	if c.Flags.TopScores() != 100 || !c.Flags.FilterFailures() {
		t.Errorf("flags: got %d, %t, want 100, true", c.Flags.TopScores(), c.Flags.FilterFailures())
	}
	var want []string
	for _, change := range [][2]string{{"v", "0"}, {"s", "100"}, {"s", "100"}, {"f", "true"}} {
		want = append(want, fmt.Sprintf(`"level"=0 "msg"="Accepted a request of the diagnostics API" "method"="PUT" `+
			`"path"="/debug/flags/%s" "value"="%s" "user"="someone"`, change[0], change[1]))
	}
	if diff := cmp.Diff(want, audited); diff != "" {
		t.Errorf("audited (-want +got):\n%s", diff)
	}
	if status, body, _ := ask(h, "PUT", "/debug/flags/s", strings.Repeat("1", maxFlagBody+1)); status != 400 {
		t.Errorf("a huge value: got %d %s", status, body)
	}
	if status, body, contentType := ask(h, "GET", "/debug/flags", ""); status != 200 ||
		contentType != "text/html; charset=utf-8" || !strings.Contains(body, "/debug/flags/s") {
		t.Errorf("index: got %d %s %s", status, contentType, body)
	}
}

func TestMountsOfPlugins(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeText(w, 200, "theirs") })
	mine := Mount{
		Plugin: "Mine", Handler: answer,
		Routes: []Route{{"GET", "/apis/v1/plugins/Mine/x/:y"}, {"POST", "/apis/v1/plugins/Mine/x"}},
	}
	c := config(t)
	c.Mounts = []Mount{mine}
	h := serve(t, c)
	if _, body, _ := ask(h, "GET", "/apis/v1/plugins/Mine/x/1", ""); body != "theirs\n" {
		t.Errorf("mounted path answers %q", body)
	}
	if _, body, _ := ask(h, "GET", "/apis/v1/__services__", ""); !strings.HasSuffix(body,
		`],"POST":["/apis/v1/plugins/Mine/x","/apis/v1/whatif"]}`) || !strings.Contains(body, "/Mine/x/:y") {
		t.Errorf("mounted paths are not listed: %s", body)
	}
	for name, bad := range map[string][]Mount{
		"twice": {mine, mine},
		"one of ours": {{
			Plugin: "Counter", Handler: answer,
			Routes: []Route{{"GET", "/apis/v1/plugins/Counter/total"}},
		}},
		"outside of its path": {{Plugin: "Mine", Handler: answer, Routes: []Route{{"GET", "/apis/v1/nodes"}}}},
	} {
		c.Mounts = bad
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), bad[0].Plugin) {
			t.Errorf("%s: got %v, want an error that names the plugin", name, err)
		}
	}
}

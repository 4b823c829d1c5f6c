package nodenumaresource

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/follow"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// served is a plugin of our name with these endpoints.
type served struct{ diag.Service }

func (served) Name() string                { return Name }
func (s served) Diagnostics() diag.Service { return s.Service }

// leader is a scheduler that leads and knows everything. Endpoints of plugins ask it nothing else.
type leader struct{ diag.Scheduler }

func (leader) Leading() bool { return true }
func (leader) Ready() error  { return nil }

// ask asks for a path below the plugin's, as a caller who may read node-1, bare and the pods of default.
func ask(t *testing.T, path string, wrong ...follow.Misprediction) (status int, body string) {
	t.Helper()
	account := example(t)
	service := endpoints(func(name string) *ledger.View {
		switch name {
		case "node-1", "node-2":
			return account
		case "bare":
			return ledger.New(ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}}).View()
		}
		return nil
	}, func() []follow.Misprediction { return append([]follow.Misprediction{}, wrong...) })
	h, err := diag.New(diag.Config{
		Scheduler: leader{}, Flags: &diag.Flags{},
		Plugins: []fwk.Plugin{served{service}},
		Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision,
			string, error,
		) {
			if a.GetName() == "node-2" || a.GetNamespace() == "secret" {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		}),
	})
	testkit.Check(t, err)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, diag.PluginPrefix+path, nil)
	h.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "someone"})))
	text, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(text)
}

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

func TestMispredictionsOfPodsThatTheCallerMayNotReadAreLeftOut(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 0).UTC()
	status, got := ask(t, "NodeNUMAResource/mispredictions",
		follow.Misprediction{
			Time: at, Namespace: "default", Name: "b", UID: "u-b", Node: "n", Mode: "Follow", Model: "1.36",
			Kinds:     []string{"cpus"},
			Predicted: annotation.PlacedContainers{"c": {CPUs: "2-3"}},
			Actual:    annotation.PlacedContainers{"c": {CPUs: "4-5"}},
		},
		follow.Misprediction{
			Time: at, Namespace: "secret", Name: "s", UID: "u-s", Node: "n", Mode: "Follow", Model: "1.36",
			Kinds: []string{"cpus"},
		},
		follow.Misprediction{
			Time: at, Namespace: "default", Name: "a", UID: "u-a", Node: "n", Mode: "Own", Model: "1.36",
			Kinds: []string{"rejected"}, Reason: "TopologyAffinityError",
		},
	)
	const want = `[{"time":"2023-11-14T22:13:20Z","namespace":"default","name":"b","uid":"u-b","node":"n",` +
		`"mode":"Follow","model":"1.36","kinds":["cpus"],` +
		`"predicted":{"c":{"cpus":"2-3"}},"actual":{"c":{"cpus":"4-5"}}},` +
		`{"time":"2023-11-14T22:13:20Z","namespace":"default","name":"a","uid":"u-a","node":"n","mode":"Own",` +
		`"model":"1.36","kinds":["rejected"],"reason":"TopologyAffinityError"}]`
	if status != http.StatusOK || got != want {
		t.Errorf("status %d, got\n%s\nwant\n%s", status, got, want)
	}
}

func TestAccountsByteByByte(t *testing.T) {
	t.Parallel()
	const allocated = `"1":{"cpuID":1,"coreID":1,"nodeID":0,"socketID":0,"refCount":1,"exclusivePolicy":"PCPULevel"},` +
		`"17":{"cpuID":17,"coreID":1,"nodeID":0,"socketID":0,"refCount":1,"exclusivePolicy":"PCPULevel"},` +
		`"18":{"cpuID":18,"coreID":2,"nodeID":0,"socketID":0,"refCount":1,"exclusivePolicy":""},` +
		`"2":{"cpuID":2,"coreID":2,"nodeID":0,"socketID":0,"refCount":1,"exclusivePolicy":""}`
	for path, want := range map[string]string{
		"NodeNUMAResource/mispredictions":       `[]`,
		"NodeNUMAResource/availableCPUs/node-1": `{"availableCPUs":"3-15,19-31","allocated":{` + allocated + `}}`,
		"NodeNUMAResource/availableCPUs/bare":   `{"availableCPUs":"","allocated":{}}`,
		"NodeNUMAResource/cpuTopologyOptions/bare": `{"cpuTopology":null,"reservedCPUs":"","maxRefCount":1,` +
			`"policy":{"policy":"none"},"fault":"TopologyMissing"}`,
		"NodeNUMAResource/availableCPUs/nope": `{"message":"cannot find node nope"}`,
		"NodeNUMAResource/nodes/node-2":       `{"message":"node node-2 cannot be read: get on nodes is missing"}`,
	} {
		if _, got := ask(t, path); got != want {
			t.Errorf("GET %s: got\n%s\nwant\n%s", path, got, want)
		}
	}
}

func TestTopologyOptionsHaveTheContractsFields(t *testing.T) {
	t.Parallel()
	_, body := ask(t, "NodeNUMAResource/cpuTopologyOptions/node-1")
	const head = `{"cpuTopology":{"numCPUs":32,"numCores":16,"numNodes":4,"numSockets":2,` +
		`"cpuDetails":{"0":{"cpuID":0,"coreID":0,"nodeID":0,"socketID":0,"refCount":0,"exclusivePolicy":""},`
	const tail = `}},"reservedCPUs":"0,16","maxRefCount":1,"policy":{"policy":"static",` +
		`"options":{"full-pcpus-only":"true"},"reservedCPUs":"0,16"}}`
	if !strings.HasPrefix(body, head) || !strings.HasSuffix(body, tail) {
		t.Errorf("got\n%s\nwant it to begin with\n%s\nand to end with\n%s", body, head, tail)
	}
	_, aliased := ask(t, "NodeNUMAResources/cpuTopologyOptions/node-1")
	if aliased != body {
		t.Errorf("the seed's spelling of the plugin answers\n%s", aliased)
	}
}

func TestNodeAllocationHidesNamesThatTheCallerMayNotRead(t *testing.T) {
	t.Parallel()
	_, body := ask(t, "NodeNUMAResource/nodes/node-1")
	var got struct {
		Name      string                     `json:"name"`
		Available string                     `json:"availableCPUs"`
		Policy    string                     `json:"numaTopologyPolicy"`
		Total     []numaResource             `json:"numaNodeResources"`
		Remaining []numaResource             `json:"remainingNUMANodeResources"`
		Allocated []numaResource             `json:"allocatedNUMANodeResources"`
		CPUs      map[string]json.RawMessage `json:"allocatedCPUs"`
		Pods      []allocatedPod             `json:"allocatedPods"`
		Hidden    int                        `json:"podsHidden"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	amount := func(node int32, cpu string) numaResource {
		return numaResource{Node: node, Resources: object.List("cpu", cpu)}
	}
	for name, pair := range map[string][2]any{
		"total":     {[]numaResource{amount(0, "8"), amount(1, "8"), amount(2, "8"), amount(3, "8")}, got.Total},
		"allocated": {[]numaResource{amount(0, "4"), amount(1, "0"), amount(2, "0"), amount(3, "0")}, got.Allocated},
		"remaining": {[]numaResource{amount(0, "4"), amount(1, "8"), amount(2, "8"), amount(3, "8")}, got.Remaining},
		"pods":      {[]allocatedPod{{"u-lse", "default", "lse", "1,17", "PCPULevel"}}, got.Pods},
		"hidden":    {1, got.Hidden},
		"policy":    {"Restricted", got.Policy},
		"CPUs held": {4, len(got.CPUs)},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

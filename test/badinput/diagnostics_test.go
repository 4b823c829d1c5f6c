package badinput

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/whatif"
	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/sched/placement"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// diagnosticsCases hand bodies and queries to the diagnostics API. The cluster has node n, the pod default/runs on it
// and the pod default/waits.
func diagnosticsCases() []bad {
	asks := func(status int, method, path, body string) func(*testing.T) string {
		return func(t *testing.T) string {
			t.Helper()
			return diagnosticsRefuse(t, status, method, path, body)
		}
	}
	flag := func(name, body string) func(*testing.T) string {
		return asks(http.StatusBadRequest, http.MethodPut, "/debug/flags/"+name, body)
	}
	question := func(body string) func(*testing.T) string {
		return asks(http.StatusBadRequest, http.MethodPost, "/apis/v1/whatif", body)
	}
	change := func(change string) func(*testing.T) string {
		return question(`{"changes":[` + change + `],"ask":{"pods":["default/waits"]}}`)
	}
	get := func(status int, path string) func(*testing.T) string { return asks(status, http.MethodGet, path, "") }
	const notNumber = `strconv.Atoi: parsing "x": invalid syntax`
	return []bad{
		{
			"flags: a log level that is not a number", flag("v", "x"),
			[]string{`strconv.ParseUint: parsing "x": invalid syntax`},
		},
		{"flags: scores of x nodes", flag("s", "x"), []string{"failed set debugTopNScores x: " + notNumber}},
		{
			"flags: scores of fewer than no node", flag("s", "-1"),
			[]string{"failed set debugTopNScores -1: must not be negative"},
		},
		{
			"flags: scores of half a node", flag("s", "0.5"),
			[]string{`failed set debugTopNScores 0.5: strconv.Atoi: parsing "0.5": invalid syntax`},
		},
		{
			"flags: scores of more nodes than a number has", flag("s", strings.Repeat("9", 30)),
			[]string{"failed set debugTopNScores 999", "value out of range"},
		},
		{
			"flags: a number with a blank", flag("s", " 5"),
			[]string{`failed set debugTopNScores  5: strconv.Atoi: parsing " 5": invalid syntax`},
		},
		{
			"flags: a switch that is neither on nor off", flag("f", "perhaps"),
			[]string{`failed set debugFilterFailure perhaps: strconv.ParseBool: parsing "perhaps": invalid syntax`},
		},
		{"flags: no value", flag("f", ""), []string{`failed set debugFilterFailure : strconv.ParseBool: parsing ""`}},
		{
			"flags: a value of a megabyte", flag("s", strings.Repeat("1", 1<<20)),
			[]string{"read the value of flag s", "request body too large"},
		},
		{
			"flags: POST in the place of PUT", asks(http.StatusNotAcceptable, http.MethodPost, "/debug/flags/s", "5"),
			[]string{"unsupported http method"},
		},
		{
			"flags: one that does not exist", asks(http.StatusNotFound, http.MethodPut, "/debug/flags/z", "5"),
			[]string{"no such path /debug/flags/z"},
		},
		{"what-if: no body", question(""), []string{"read the question: EOF"}},
		{"what-if: half a body", question(`{"ask":`), []string{"read the question: unexpected EOF"}},
		{"what-if: two bodies", question(`{}{}`), []string{"read the question: more than one JSON value"}},
		{"what-if: an unknown field", question(`{"asks":{}}`), []string{`unknown field "asks"`}},
		{
			"what-if: a body above 1 MiB", asks(http.StatusRequestEntityTooLarge, http.MethodPost, "/apis/v1/whatif",
				`{"ask":{"pods":["`+strings.Repeat("x", 1<<20)+`"]}}`),
			[]string{"read the body: http: request body too large"},
		},
		{
			"what-if: GET in the place of POST", get(http.StatusMethodNotAllowed, "/apis/v1/whatif"),
			[]string{"method GET is not allowed on /apis/v1/whatif: use POST"},
		},
		{
			"what-if: a mode that does not exist", question(`{"ask":{"mode":"guess"}}`),
			[]string{`ask.mode is "guess", want schedule, preempt, makeRoom, defragment, count or forecast`},
		},
		{
			"what-if: a pod without a namespace", question(`{"ask":{"pods":["waits"]}}`),
			[]string{`ask.pods[0]: "waits" is not a pod: want namespace/name`},
		},
		{
			"what-if: a pod that does not exist", question(`{"ask":{"pods":["default/none"]}}`),
			[]string{"ask.pods[0]: pod default/none does not exist"},
		},
		{
			"what-if: a pod that has a node", question(`{"ask":{"pods":["default/runs"]}}`),
			[]string{"ask.pods[0]: pod default/runs is bound to node n: remove it with removePod"},
		},
		{
			"what-if: a pod of another scheduler", question(`{"ask":{"pods":["default/waits"]}}`),
			[]string{`pod default/waits: spec.schedulerName is "other"; this scheduler serves`},
		},
		{
			"what-if: victims on some nodes alone", question(`{"ask":{"mode":"preempt","nodes":["n"]}}`),
			[]string{"ask.nodes and ask.reserve are not for mode preempt"},
		},
		{
			"what-if: a change of nothing", change(`{}`),
			[]string{"changes[0]: has 0 kinds of change, want one of removePod"},
		},
		{
			"what-if: two changes in one", change(`{"cordon":"n","removePod":"default/runs"}`),
			[]string{"changes[0]: has 2 kinds of change", "want one of"},
		},
		{
			"what-if: a pod removed that runs nowhere", change(`{"removePod":"default/waits"}`),
			[]string{"changes[0]: removePod: pod default/waits is not bound to a node"},
		},
		{
			"what-if: a pod without a name", change(`{"addPod":{"spec":{}}}`),
			[]string{"changes[0]: addPod: metadata.name is empty"},
		},
		{
			"what-if: a pod with a field that does not exist", change(`{"addPod":{"metadata":{"name":"a"},"sepc":{}}}`),
			[]string{`changes[0]: addPod: json: unknown field "sepc"`},
		},
		{
			"what-if: a pod that exists", change(`{"addPod":{"metadata":{"name":"waits"}}}`),
			[]string{"changes[0]: addPod: pod default/waits exists already"},
		},
		{
			"what-if: a pod that is moved by a patch",
			change(`{"patchPod":{"name":"default/waits","patch":{"spec":{"nodeName":"n"}}}}`),
			[]string{"changes[0]: patchPod: metadata.namespace, name, uid and spec.nodeName cannot change"},
		},
		{
			"what-if: more of a node than it has",
			change(`{"patchNode":{"name":"n","patch":{"status":{"allocatable":{"cpu":"99"}}}}}`),
			[]string{"changes[0]: patchNode: only metadata.labels, spec.taints and spec.unschedulable can change"},
		},
		{
			"what-if: a label that the account is read from",
			change(`{"patchNode":{"name":"n","patch":{"metadata":{"labels":{"node.koordinator.sh/a":"b"}}}}}`),
			[]string{"changes[0]: patchNode: label node.koordinator.sh/a cannot change"},
		},
		{"what-if: a cordon of no node", change(`{"cordon":"none"}`), []string{"changes[0]: cordon:", "none"}},
		{
			"what-if: nodes like none", change(`{"addNode":{"like":"none"}}`),
			[]string{"changes[0]: addNode.like: node none does not exist"},
		},
		{
			"what-if: a thousand nodes", change(`{"addNode":{"like":"n","count":1000}}`),
			[]string{"changes[0]: addNode.count is 1000, want 1 to 100"},
		},
		{
			"what-if: a quota with neither min nor max", change(`{"setQuota":{"name":"q"}}`),
			[]string{"changes[0]: setQuota: has neither min nor max"},
		},
		{
			"what-if: a quota that does not exist", change(`{"setQuota":{"name":"q","max":{"cpu":"1"}}}`),
			[]string{"changes[0]: setQuota: quota q does not exist"},
		},
		{
			"what-if: a gang without a pod", change(`{"scaleGang":{"gang":"default/g","to":3}}`),
			[]string{`changes[0]: scaleGang: gang "default/g" has no pod: want namespace/name`},
		},
		{
			"explain: fixes that are neither wanted nor not",
			get(http.StatusBadRequest, "/apis/v1/explain/pods/default/waits?fixes=some"),
			[]string{"fixes=some is not allowed: use true or false"},
		},
		{
			"explain: a pod that the scheduler does not have",
			get(http.StatusNotFound, "/apis/v1/explain/pods/default/none"),
			[]string{"cannot find pod default/none"},
		},
		{
			"decisions: a pod without a namespace", get(http.StatusBadRequest, "/apis/v1/decisions?pod=waits"),
			[]string{"pod=waits is not allowed: use namespace/name"},
		},
		{
			"diagnostics: a path that does not exist", get(http.StatusNotFound, "/apis/v1/podz"),
			[]string{"no such path /apis/v1/podz; /apis/v1/__services__ lists them"},
		},
	}
}

// cluster is a scheduler of no profile that knows pods and leads.
type cluster struct {
	diag.Scheduler
	whatif.Objects
	whatif.Accounts
	whatif.Cycles
	pods map[string]*corev1.Pod
}

func (c cluster) Leading() bool                          { return true }
func (c cluster) Ready() error                           { return nil }
func (c cluster) Pod(namespace, name string) *corev1.Pod { return c.pods[namespace+"/"+name] }
func (c cluster) Queue(*corev1.Pod) *view.Queue          { return nil }
func (c cluster) Trial() whatif.Trial                    { return placement.NewTrial(kube.NewStore()) }

func (c cluster) Quotas() whatif.Quotas { return elasticquota.NewCopy(kube.NewQuotas(time.Now)) }

func (c cluster) Evaluate(context.Context, *corev1.Pod) (view.Verdict, error) {
	return view.Verdict{}, nil
}

func (c cluster) Profiles(fwk.SharedLister) (map[string]framework.Framework, error) {
	return map[string]framework.Framework{}, nil
}

// diagnosticsRefuse sends a request that must be answered with a status, and returns the answer. No flag may change.
func diagnosticsRefuse(t *testing.T, status int, method, path, body string) string {
	t.Helper()
	pods := map[string]*corev1.Pod{
		"default/waits": testobject.Pod("waits", testobject.UID("w"), testobject.Scheduler("other")),
		"default/runs":  testobject.Pod("runs", testobject.UID("r"), testobject.On("n")),
	}
	nodes := cache.New(t.Context(), nil, false, false)
	nodes.AddNode(klog.Background(), testobject.Node("n", nil, "cpu", "4"))
	c := cluster{pods: pods}
	engine := whatif.New(whatif.Cluster{
		Nodes: snapshot.NewCopy(nodes), Gangs: kube.NewGangs(), Objects: c, Accounts: c, Cycles: c,
	})
	flags := &diag.Flags{}
	h, err := diag.New(diag.Config{Scheduler: c, WhatIf: engine, Flags: flags, Decisions: &diag.Ring{}})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	if w.Code != status || flags.TopScores() != 0 || flags.FilterFailures() {
		t.Errorf("got %d with scores %d and failures %v, want %d and no flag set", w.Code, flags.TopScores(),
			flags.FilterFailures(), status)
	}
	return strings.ReplaceAll(w.Body.String(), `\"`, `"`)
}

package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// whatIfWorld is an API server that admits pods as dry runs, and a scheduler that places all pods but waits.
type whatIfWorld struct {
	t     *testing.T
	asked []string // questions as JSON, an added pod without its spec
}

func (w *whatIfWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	refusal := lack(why.InsufficientDevices, "gpu", 0, 2, "a", 5).Wire
	fail := func(status int, message string) {
		rw.WriteHeader(status)
		_ = json.NewEncoder(rw).Encode(map[string]string{"message": message})
	}
	var answer any
	switch r.Method + " " + r.URL.String() {
	case "GET /api/v1/namespaces/ml/pods/runs":
		answer = corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "runs", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"},
		}
	case "POST /api/v1/namespaces/ml/pods?dryRun=All":
		var pod corev1.Pod
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &pod); err != nil {
			w.t.Error(err)
		}
		pod.Name = pod.GenerateName + "x"
		answer = pod
	case "GET /apis/v1/explain/pods/ml/waits":
		answer = view.Pod{Pod: "ml/waits", RootCause: &refusal}
	case "GET /apis/v1/explain/pods/ml/runs", "GET /apis/v1/explain/pods/other/b":
		answer = view.Pod{Pod: "ml/runs", Placement: &view.Placement{Node: "n"}}
	case "GET /apis/v1/explain/pods/ml/g-0-whatif-1":
		fail(http.StatusNotFound, "pod ml/g-0-whatif-1 does not exist")
		return
	case "POST /apis/v1/whatif":
		var q view.WhatIf
		if err := json.Unmarshal(body, &q); err != nil {
			w.t.Error(err)
		}
		found := view.WhatIfAnswer{Victims: []view.Victim{}}
		for _, pod := range q.Ask.Pods {
			switch {
			case pod == "ml/none":
				fail(http.StatusBadRequest, "ask.pods[0]: pod ml/none does not exist")
				return
			case pod == "ml/secret":
				fail(http.StatusForbidden, "pods in namespace ml cannot be read: get on pods is missing")
				return
			case pod == "ml/waits" && len(q.Changes) == 0:
				found.Unschedulable = append(found.Unschedulable, view.Pod{Pod: pod, RootCause: &refusal})
				continue
			}
			found.Placements = append(found.Placements, view.WhatIfPlacement{
				Pod: pod, Node: "a-whatif-1", ResourceStatus: json.RawMessage(`{"cpuset":"0-3"}`),
				Devices: json.RawMessage(`{"gpu":[{"minor":1},{"minor":3}]}`),
			})
		}
		if q.Ask.Mode == view.Preempt {
			found.Victims, found.VictimsHidden = []view.Victim{{Pod: "ml/low", Node: "a", For: "ml/waits"}}, 2
		}
		for i := range q.Changes {
			if q.Changes[i].AddPod != nil {
				var pod corev1.Pod
				testkit.Check(w.t, json.Unmarshal(q.Changes[i].AddPod, &pod))
				if pod.Spec.NodeName != "" || pod.UID != "" {
					w.t.Errorf("added %s", q.Changes[i].AddPod)
				}
				q.Changes[i].AddPod, _ = json.Marshal(pod.Name) // a string is valid
			}
		}
		text, err := json.Marshal(q)
		if err != nil {
			w.t.Error(err)
		}
		w.asked, answer = append(w.asked, string(text)), found
	case "GET /api/v1/namespaces/ml":
		answer = corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	default:
		w.t.Errorf("unexpected request %s %s", r.Method, r.URL)
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(answer)
}

// Each question is the JSON that the API takes. One that adds pods is asked once more without its other changes.
func TestWhatIfAsksTheScheduler(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
		"spec: {nodeName: old, containers: [{name: c, image: i}]}\n"
	const job = "kind: Job\nspec: {template: {spec: {containers: [{name: c, image: i}]}}}\n"
	for name, c := range map[string]struct {
		in   string
		args []string
		want []string
	}{
		"a pod that waits, as it is": {"", []string{"pod/waits"}, []string{`{"ask":{"pods":["ml/waits"]}}`}},
		"nodes, machines and victims": {
			"",
			[]string{
				"waits", "pod/other/b", "--add", "2 x hgx-h100", "--add", "like n", "--cordon", "node/n", "--preempt",
			},
			[]string{`{"changes":[{"addNode":{"like":"hgx-h100","count":2,"machine":{"node":NODE}}},` +
				`{"addNode":{"like":"n","count":1}},{"cordon":"n"}],"ask":{"pods":["ml/waits","other/b"],` +
				`"mode":"preempt"}}`},
		},
		"quotas and gangs come first": {
			"",
			[]string{
				"waits", "--remove", "pod/runs", "--set-quota", "q:max.cpu=20, min.nvidia.com/gpu=2",
				"--scale-gang", "g=3", "--change", `{"patchPod":{"name":"ml/waits","patch":{}}}`,
			},
			[]string{`{"changes":[{"setQuota":{"max":{"cpu":"20"},"min":{"nvidia.com/gpu":"2"},"name":"q"}},` +
				`{"scaleGang":{"gang":"ml/g","to":3}},{"patchPod":{"name":"ml/waits","patch":{}}},` +
				`{"removePod":"ml/runs"}],"ask":{"pods":["ml/waits"]}}`},
		},
		"the successor of a pod, and a member that a gang gets": {
			"",
			[]string{"runs", "g-0-whatif-1", "--remove", "runs", "--scale-gang", "ml/g=2"},
			[]string{`{"changes":[{"scaleGang":{"gang":"ml/g","to":2}},{"removePod":"ml/runs"}],` +
				`"ask":{"pods":["ml/runs","ml/g-0-whatif-1"]}}`},
		},
		"the successor of a pod on another node": {
			"",
			[]string{"runs", "--remove", "runs", "--on", "node/n", "--on", "m"},
			[]string{`{"changes":[{"removePod":"ml/runs"}],"ask":{"pods":["ml/runs"],"nodes":["n","m"]}}`},
		},
		"a pod of a file": {pod, []string{"-f", "-"}, []string{
			`{"changes":[{"addPod":"a"}],"ask":{"pods":["ml/a"]}}`,
		}},
		"a template, with another change": {job, []string{"-f", "-", "--cordon", "n"}, []string{
			`{"changes":[{"cordon":"n"},{"addPod":"whatif-x"}],"ask":{"pods":["ml/whatif-x"]}}`,
			`{"changes":[{"addPod":"whatif-x"}],"ask":{"pods":["ml/whatif-x"]}}`,
		}},
		"a pod like another": {"", []string{"--like", "pod/runs"}, []string{
			`{"changes":[{"addPod":"runs-like"}],"ask":{"pods":["ml/runs-like"]}}`,
		}},
		"a pod as YAML, as the console has it": {
			"",
			[]string{"pod/b", "--change", `{"addPod":"metadata: {name: b, namespace: ml}"}`},
			[]string{`{"changes":[{"addPod":"b"}],"ask":{"pods":["ml/b"]}}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &whatIfWorld{t: t}
			server := httptest.NewServer(w)
			defer server.Close()
			out, errOut, code := runWithMachines(t, "whatif", server.URL, c.in, append(c.args, "-o", "json")...)
			if code != 0 || !strings.Contains(out, `"kind": "WhatIf"`) {
				t.Fatalf("exit code %d, %s\n%s", code, errOut, out)
			}
			for i := range w.asked {
				if _, rest, found := strings.Cut(w.asked[i], `"machine":{"node":`); found {
					node, _, _ := strings.Cut(rest, "}}},")
					w.asked[i] = strings.Replace(w.asked[i], node, "NODE", 1)
				}
			}
			if diff := cmp.Diff(c.want, w.asked); diff != "" {
				t.Errorf("questions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIfAsGolden(t *testing.T) {
	w := &whatIfWorld{t: t}
	server := httptest.NewServer(w)
	defer server.Close()
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
	var all []string
	for _, args := range [][]string{
		{"waits"},
		{"waits", "--add", "like a"},
		{"waits", "runs", "g-0-whatif-1", "--remove", "runs", "--scale-gang", "g=2", "--preempt"},
		{"-f", "-", "--cordon", "n"},
	} {
		out, errOut, code := runWithMachines(t, "whatif", server.URL, pod, args...)
		if code != 0 || strings.Contains(errOut, "error") {
			t.Errorf("%q: exit code %d, %s", args, code, errOut)
		}
		all = append(all, out)
	}
	golden(t, "whatif.txt", strings.Join(all, "────\n"))
	if _, _, code := runWithMachines(t, "whatif", server.URL, "", "waits", "--exit-code"); code != ExitNegative {
		t.Errorf("exit code %d, want %d", code, ExitNegative)
	}
}

func TestWhatIfRefusesBadInput(t *testing.T) {
	w := &whatIfWorld{t: t}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	const give = "specify pod/NAME, -f FILE or --like pod/NAME"
	const quota = "use NAME:max.RESOURCE=AMOUNT,min.RESOURCE=AMOUNT"
	const change = "use one JSON object with a change as POST /apis/v1/whatif takes it: "
	for name, c := range map[string]struct {
		args []string
		want string
		code int
	}{
		"no pod":                     {nil, give, ExitUsage},
		"a file and a likeness":      {[]string{"-f", "x", "--like", "runs"}, give, ExitUsage},
		"a pod of another kind":      {[]string{"gang/a"}, `unknown kind in "gang/a": use pod`, ExitUsage},
		"a pod that does not exist":  {[]string{"none"}, "pod ml/none does not exist", ExitUsage},
		"a pod that may not be read": {[]string{"secret"}, "get on pods is missing", ExitUnreachable},
		"like a gang":                {[]string{"--like", "gang/a"}, `--like: unknown kind in "gang/a"`, ExitUsage},
		"a cordon of a pod": {
			[]string{"a", "--cordon", "pod/a"},
			`--cordon "pod/a": unknown kind`, ExitUsage,
		},
		"a cordon of no node": {
			[]string{"a", "--cordon", "node/"},
			`--cordon "node/": "node/" names no node`, ExitUsage,
		},
		"a pod on a pod":           {[]string{"a", "--on", "pod/n"}, `--on "pod/n": unknown kind`, ExitUsage},
		"victims on a chosen node": {[]string{"a", "--on", "n", "--preempt"}, "--on and --preempt", ExitUsage},
		"the removal of a node": {
			[]string{"a", "--remove", "node/n"},
			`--remove "node/n": unknown kind`, ExitUsage,
		},
		"a gang without a number": {
			[]string{"a", "--scale-gang", "g"},
			`--scale-gang "g": use NAME=N`, ExitUsage,
		},
		"a gang of many":          {[]string{"a", "--scale-gang", "g=many"}, "use NAME=N", ExitUsage},
		"a number without a gang": {[]string{"a", "--scale-gang", "=3"}, "use NAME=N", ExitUsage},
		"a quota without amounts": {[]string{"a", "--set-quota", "q"}, quota, ExitUsage},
		"a quota without a name":  {[]string{"a", "--set-quota", ":max.cpu=1"}, quota, ExitUsage},
		"a quota's share": {
			[]string{"a", "--set-quota", "q:share.cpu=1"},
			`"share.cpu=1" is not allowed: ` + quota, ExitUsage,
		},
		"a quota without a resource": {
			[]string{"a", "--set-quota", "q:max.=1"},
			`"max.=1" is not allowed`, ExitUsage,
		},
		"a quota of much": {
			[]string{"a", "--set-quota", "q:max.cpu=much"},
			`max.cpu is "much", want an amount such as 20`, ExitUsage,
		},
		"a machine that is not one": {[]string{"a", "--add", "2 x h200"}, `"h200" is not a preset`, ExitUsage},
		"too many nodes": {
			[]string{"a", "--add", "101 x like n"},
			"the number is 101, want 1 to 100", ExitUsage,
		},
		"a change that is not JSON": {
			[]string{"a", "--change", "cordon n"},
			change + "read the question: invalid", ExitUsage,
		},
		"a change of an unknown field": {
			[]string{"a", "--change", `{"drain":"n"}`},
			change + `read the question: json: unknown field "drain"`, ExitUsage,
		},
		"two changes in one": {
			[]string{"a", "--change", `{"cordon":"n"},{"cordon":"m"}`},
			change + "these are 2", ExitUsage,
		},
		"a pod that is not YAML": {
			[]string{"a", "--change", `{"addPod":"a: ["}`},
			change + "changes[0].addPod:", ExitUsage,
		},
		"an unknown format":          {[]string{"a", "-o", "xml"}, "-o xml is not allowed: use table", ExitUsage},
		"a flag that does not exist": {[]string{"a", "--drain", "n"}, "unknown flag: --drain", ExitUsage},
		"an address without a host": {
			[]string{"a", "--diagnostics", "localhost"},
			`diagnostics address "localhost" is not allowed`, ExitUsage,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, code := runWithMachines(t, "whatif", server.URL, "", c.args...)
			if code != c.code || out != "" || !strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, want %d\n%s\nwant %s\n%s", code, c.code, errOut, c.want, out)
			}
		})
	}
}

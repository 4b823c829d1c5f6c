package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

func lack(code why.Code, resource why.Resource, free, asked int64, node string, nodes int) view.Refusal {
	o := why.Obstacle{Nodes: nodes, Finding: why.Finding{
		Reason: why.Reason{Code: code, Resource: resource, Unit: why.Count, Free: free, Asked: asked},
		Phase:  why.Filter, Object: node,
	}}
	return view.Refusal{Wire: o.Wire(), HaveNeed: o.HaveNeed()}
}

func counted() *view.Capacity {
	gpu, tainted := lack(why.InsufficientDevices, "gpu", 0, 2, "a", 5), lack(why.TaintToleration, "", 0, 0, "x", 3)
	return &view.Capacity{
		Pods: 37, Room: 37, Nodes: 8,
		Groups: []view.CapacityGroup{
			{Nodes: []string{"a", "b", "c", "d"}, Fit: 8, Lacks: &gpu},
			{Nodes: []string{"e"}, Fit: 5, Lacks: &gpu},
			{Nodes: []string{"x", "y", "z"}, Lacks: &tainted},
		},
		Limits: []view.Refusal{gpu},
	}
}

func TestCapacityAsGolden(t *testing.T) {
	t.Parallel()
	gangs, limited, late, added, none, ports := counted(), counted(), counted(), counted(), counted(), counted()
	gangs.Gang = &view.GangCapacity{Members: 4, Fit: 9}
	limited.Pods = 12
	limited.Quota = &view.QuotaCapacity{Name: "team", Pods: 12, Lacks: lack(why.QuotaExceeded, "cpu", 1, 4, "", 0)}
	late.Bound, late.Groups[1].Lacks, late.Limits = "1.5s", nil, nil
	added.Added, added.Notes = 16, []string{"what the counted pods will use of the nodes is not estimated"}
	none.Pods, none.Room, none.Groups = 0, 0, none.Groups[2:]
	root := lack(why.TaintToleration, "", 0, 0, "x", 3).Wire
	ports.Pods, ports.Room, ports.Groups = 1, 1, []view.CapacityGroup{{Nodes: []string{"a"}, Fit: 1}}
	ports.Nodes, ports.Limits = 1, []view.Refusal{lack(why.NodePorts, "", 0, 0, "a", 1)}
	refused := counted()
	refused.Pods, refused.Admission = 2, &view.AdmissionCapacity{
		Pods: 2, Message: "exceeded quota: r, requested: requests.cpu=2, used: requests.cpu=4, limited: requests.cpu=4",
	}
	both := counted()
	both.Pods, both.Quota, both.Admission = 12, limited.Quota, &view.AdmissionCapacity{Pods: 15, Message: "exceeded"}
	var all []string
	for _, c := range []*view.Capacity{counted(), gangs, limited, late, added, ports, refused, both} {
		all = append(all, drawCapacity(c, nil, 0))
	}
	all = append(all, drawCapacity(none, &view.Pod{RootCause: &root}, 0))
	golden(t, "capacity.txt", strings.Join(all, "────\n"))
}

// capacityWorld is an API server that admits pods as dry runs, and a scheduler that counts them.
type capacityWorld struct {
	t     *testing.T
	asked view.WhatIf
}

func (w *capacityWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var answer any
	switch r.Method + " " + r.URL.String() {
	case "POST /api/v1/namespaces/ml/pods?dryRun=All":
		var pod corev1.Pod
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &pod); err != nil {
			w.t.Error(err)
		}
		if pod.Labels["quota"] == "full" {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusForbidden)
			refused := apierrors.NewForbidden(corev1.Resource("pods"), "capacity-x",
				errors.New("exceeded quota: r, requested: pods=1, used: pods=2, limited: pods=2")).Status()
			refused.APIVersion, refused.Kind = "v1", "Status"
			_ = json.NewEncoder(rw).Encode(refused)
			return
		}
		pod.Name, pod.Spec.SchedulerName = pod.GenerateName+"x", "admitted"
		answer = pod
	case "POST /apis/v1/whatif":
		if err := json.Unmarshal(body, &w.asked); err != nil {
			w.t.Error(err)
		}
		if strings.Contains(string(body), "refused") {
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = rw.Write([]byte(`{"message":"ask.pods[0]: pod ml/refused does not exist"}`))
			return
		}
		answer = view.WhatIfAnswer{Capacity: counted()}
	case "GET /api/v1/namespaces/ml":
		answer = corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	default:
		w.t.Errorf("unexpected request %s %s", r.Method, r.URL)
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(answer)
}

func testMachines(names []string) ([]runtime.Object, error) {
	if names[0] != "hgx-h100" {
		return nil, usagef("%q is not a preset", names[0])
	}
	return []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "hgx-h100-0"}}}, nil
}

// runWithMachines runs a verb that may add machines, with in as standard input.
func runWithMachines(t *testing.T, verb, server, in string, args ...string) (out, errOut string, code int) {
	t.Helper()
	streams, stdin, stdout, stderr := genericiooptions.NewTestIOStreams()
	_, _ = stdin.WriteString(in)
	root := NewRoot("tenon", streams, Doctor{Machines: Machines{Objects: testMachines}})
	code = Run(t.Context(), root, append([]string{
		verb, "--server", server, "--diagnostics", server, "-n", "ml",
	}, args...), stderr)
	return stdout.String(), stderr.String(), code
}

func TestCapacityAsksTheScheduler(t *testing.T) {
	w := &capacityWorld{t: t}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n" +
		"spec: {nodeName: old, containers: [{name: c, image: i}]}\n"
	const job = "kind: CronJob\nspec: {jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}}\n"
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"a pod of a file": {pod, []string{"-f", "-"}, `{"changes":[{"addPod":POD}],"ask":{"pods":["ml/capacity-x"],` +
			`"mode":"count"}}`},
		"a template": {job, []string{"-f", "-"}, `{"changes":[{"addPod":POD}],"ask":{"pods":["ml/capacity-x"],` +
			`"mode":"count"}}`},
		"gangs like a pod, on nodes like one": {
			"",
			[]string{"--like", "pod/a", "--gang", "8", "--nodes-like", "node/n"},
			`{"ask":{"pods":["ml/a"],"mode":"count","members":8,"nodesLike":"n"}}`,
		},
		"more nodes": {
			"",
			[]string{"--like", "a", "--add", "10 × hgx-h100", "--add", "2x like node/n", "--add", " like  n "},
			`{"changes":[{"addNode":{"like":"hgx-h100","count":10,"machine":{"node":NODE}}},` +
				`{"addNode":{"like":"n","count":2}},{"addNode":{"like":"n","count":1}}],` +
				`"ask":{"pods":["ml/a"],"mode":"count"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.asked = view.WhatIf{}
			out, errOut, code := runWithMachines(t, "capacity", server.URL, c.in, append(c.args, "-o", "json")...)
			if code != 0 || !strings.Contains(out, `"pods": 37`) || !strings.Contains(out, `"kind": "Capacity"`) {
				t.Fatalf("exit code %d, %s\n%s", code, errOut, out)
			}
			for i := range w.asked.Changes {
				change := &w.asked.Changes[i]
				if change.AddPod != nil {
					var pod corev1.Pod
					testkit.Check(t, json.Unmarshal(change.AddPod, &pod))
					if pod.Spec.SchedulerName != "admitted" || pod.Spec.NodeName != "" || pod.Namespace != "ml" {
						t.Errorf("asked about %s", change.AddPod)
					}
					change.AddPod = json.RawMessage(`"POD"`)
				}
				if change.AddNode != nil && change.AddNode.Machine != nil {
					change.AddNode.Machine.Node = json.RawMessage(`"NODE"`)
				}
			}
			text, err := json.Marshal(w.asked)
			testkit.Check(t, err)
			asked := strings.NewReplacer(`"POD"`, "POD", `"NODE"`, "NODE").Replace(string(text))
			if diff := cmp.Diff(c.want, asked); diff != "" {
				t.Errorf("question (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoneFitsInAFullResourceQuota(t *testing.T) {
	server := httptest.NewServer(&capacityWorld{t: t})
	t.Cleanup(server.Close)
	const pod = "kind: Pod\nmetadata: {labels: {quota: full}}\nspec: {containers: [{name: c, image: i}]}\n"
	out, errOut, code := runWithMachines(t, "capacity", server.URL, pod, "-f", "-")
	const want = "None fits: the API server refuses the pod: exceeded quota: r, requested: pods=1, used: pods=2, " +
		"limited: pods=2\n"
	if code != 0 || out != want {
		t.Errorf("exit code %d, got %q, %q; want %q", code, out, errOut, want)
	}
}

func TestCapacityRefusesBadInput(t *testing.T) {
	w := &capacityWorld{t: t}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	const add = `use "N x MACHINE" or "N x like node/NAME"`
	const give = "specify the pod with -f FILE or --like pod/NAME"
	const either = "specify either -f FILE or --like pod/NAME"
	like := func(args ...string) []string { return append([]string{"--like", "pod/a"}, args...) }
	file := []string{"-f", "-"}
	for name, c := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"no pod":                      {"", nil, either},
		"two pods":                    {"", like("-f", "x"), either},
		"an argument":                 {"", []string{"pod/a"}, "too many arguments: " + give},
		"a pod of another kind":       {"", []string{"--like", "gang/a"}, `unknown kind in "gang/a": use pod`},
		"a pod that does not exist":   {"", []string{"--like", "refused"}, "pod ml/refused does not exist"},
		"a gang of no pods":           {"", like("--gang", "0"), "--gang is 0, want 1 to 10000"},
		"a gang of minus one":         {"", like("--gang", "-1"), "--gang is -1, want 1 to 10000"},
		"a gang that is too large":    {"", like("--gang", "10001"), "--gang is 10001, want 1 to 10000"},
		"a gang that is not a number": {"", like("--gang", "x"), `invalid argument "x" for "--gang"`},
		"nodes like a pod":            {"", like("--nodes-like", "pod/a"), `unknown kind in "pod/a": use node`},
		"an unknown machine":          {"", like("--add", "2 x h200"), `--add "2 x h200": "h200" is not a preset`},
		"too many nodes":              {"", like("--add", "10000 x hgx-h100"), "the number is 10000, want 1 to 100"},
		"no nodes":                    {"", like("--add", "0x hgx-h100"), "the number is 0, want 1 to 100"},
		"minus one node":              {"", like("--add", "-1 x like n"), "the number is -1, want 1 to 100"},
		"a number beyond all":         {"", like("--add", "99999999999999999999 x like n"), "want 1 to 100"},
		"a number in words":           {"", like("--add", "ten hgx-h100"), add},
		"nothing to add":              {"", like("--add", ""), add},
		"a count as tenon up has it":  {"", like("--add", "hgx-h100=2"), `"hgx-h100=2" is not a machine`},
		"a machine with markup":       {"", like("--add", "2 x <b>x</b>"), `"<b>x</b>" is not a machine`},
		"an unknown format":           {"", like("-o", "xml"), "-o xml is not allowed: use table"},
		"a file that does not exist":  {"", []string{"-f", "none.yaml"}, "open none.yaml: no such file"},
		"an empty file":               {"---\n", file, "-f -: has 0 objects, want one pod or workload"},
		"a file with two objects":     {"kind: Pod\n---\nkind: Pod\n", file, "-f -: has 2 objects, want one"},
		"a file that is not YAML":     {"a: [", file, "-f -:1:1: yaml: line 1: did not find"},
		"another kind":                {"kind: ConfigMap", file, `-f -: kind is "ConfigMap", want Pod, or a workload`},
		"a pod without containers":    {"kind: Pod", file, "-f -: spec.containers is empty"},
		"a pod with a misspelled name": {
			"kind: Pod\nspek: {}", file,
			`-f -:2:1: spek: unknown field, did you mean "spec"?`,
		},
		"a name that is there twice": {"kind: Pod\nkind: Pod", file, "-f -:2:1: kind: is there twice"},
		"an amount that is not one": {
			"kind: Pod\nspec: {containers: [{name: c, resources: {requests: {cpu: many}}}]}", file,
			"-f -:2:54: spec.containers[0].resources.requests.cpu: quantities must match",
		},
		"a name of a namespace that is a list": {
			"kind: Job\nmetadata: {namespace: [a]}\nspec: {template: {}}", file,
			"-f -:2:12: metadata.namespace: a list is not allowed: use a string",
		},
		"a file that is too large": {strings.Repeat("a", maxFile+1), file, "-f -: is larger than 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, errOut, code := runWithMachines(t, "capacity", server.URL, c.in, c.args...)
			if code != ExitUsage || !strings.Contains(errOut, c.want) {
				t.Errorf("exit code %d, %q; want 2 with %q", code, errOut, c.want)
			}
		})
	}
}

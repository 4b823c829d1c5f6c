package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

var update = flag.Bool("update", false, "write the golden files")

func terms() Terms {
	return Terms{
		Wish: "tenon.sh/gang-min", Off: "tenon.sh/gang", Gang: []string{"example.com/gang"},
		Schedulers: []string{"default-scheduler", "tenon-scheduler"},
	}
}

// decoded reads one object of JSON.
func decoded(t testing.TB, text string) map[string]any {
	t.Helper()
	var out map[string]any
	testkit.Check(t, json.Unmarshal([]byte(text), &out))
	return out
}

// ruleOf returns the rule of an object of the built-in table.
func ruleOf(t testing.TB, object map[string]any) *Rule {
	t.Helper()
	group, version := SplitAPIVersion(object["apiVersion"].(string))
	r := Builtin().Find(group, version, object["kind"].(string))
	if r == nil {
		t.Fatalf("no rule for %v %v", object["apiVersion"], object["kind"])
	}
	return r
}

// drawn is a plan as golden files have it.
func drawn(p *Plan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "  %s; suspended %t; %s\n", p.Rule, p.Suspended, p.Reason)
	for _, g := range p.Gangs {
		fmt.Fprintf(&out, "  gang %s: %d of %d, with %v, refill %t\n", g.Name, g.Min, g.Members, g.Joined, g.Refill)
	}
	for i := range p.Pods {
		s := &p.Pods[i]
		labels, _ := json.Marshal(s.Labels(s.Count - 1)) // of strings
		fmt.Fprintf(&out, "  pods %s … %s in %q from %s: %s\n", s.Name(0), s.Name(s.Count-1), s.Gang, s.At, labels)
	}
	return out.String()
}

// TestEachRuleAsGolden has objects of each rule of the table, in the forms that operators and their users write.
func TestEachRuleAsGolden(t *testing.T) {
	t.Parallel()
	for _, r := range Builtin().Rules() {
		name := filepath.Join("testdata", r.Group+"_"+r.Versions[0]+"_"+r.Kind)
		input, err := os.ReadFile(name + ".jsonl")
		testkit.Check(t, err)
		var got bytes.Buffer
		for line := range strings.Lines(string(input)) {
			object := decoded(t, line)
			p, err := ruleOf(t, object).Plan(object, terms())
			children, childErr := r.Objects(object)
			testkit.Check(t, errors.Join(err, childErr))
			fmt.Fprintf(&got, "%v\n%s", object["metadata"].(map[string]any)["name"], drawn(&p))
			for _, c := range children {
				fmt.Fprintf(&got, "  object %v %v\n", c["kind"], c["metadata"])
			}
			checkPlan(t, &p)
		}
		if *update {
			testkit.Check(t, os.WriteFile(name+".golden", got.Bytes(), 0o644))
		}
		want, err := os.ReadFile(name + ".golden")
		testkit.Check(t, err)
		if got.String() != string(want) {
			t.Errorf("%s: got\n%swant\n%s", name, got.String(), want)
		}
	}
}

// checkPlan holds what every plan promises: the members of the gangs and the pods in none are all pods, a gang can
// reach its minimum, and gangs that start together list each other.
func checkPlan(t interface{ Errorf(string, ...any) }, p *Plan) {
	members, names := map[string]int64{}, map[string]bool{}
	for i := range p.Pods {
		s := &p.Pods[i]
		members[s.Gang] += s.Count
		for _, at := range []int64{0, s.Count - 1} {
			if labels := s.Labels(at); !s.Has(labels) {
				t.Errorf("pod %d of %s has the labels %v, which are not those of its set", at, s.Role, labels)
			}
			if name := s.Name(at); names[name] && at == 0 {
				t.Errorf("two pods are %s", name)
			}
		}
		names[s.Name(0)] = true
	}
	byName := map[string]Gang{}
	for _, g := range p.Gangs {
		if g.Min < 1 || g.Min > g.Members || g.Members != members[g.Name] || byName[g.Name].Min > 0 {
			t.Errorf("gang %+v has %d pods; all: %+v", g, members[g.Name], p.Gangs)
		}
		if g.Min == 1 && len(g.Joined) < 2 {
			t.Errorf("gang %+v says nothing", g)
		}
		byName[g.Name] = g
		delete(members, g.Name)
	}
	for _, g := range p.Gangs {
		for _, name := range g.Joined {
			if !slices.Equal(byName[name].Joined, g.Joined) {
				t.Errorf("gang %s starts with %v, and %s with %v", g.Name, g.Joined, name, byName[name].Joined)
			}
		}
	}
	if delete(members, ""); len(members) > 0 {
		t.Errorf("pods are in gangs that the plan does not have: %v", members)
	}
}

// TestPlansOfRandomObjects draws the numbers of objects, absent and beyond their bounds too.
func TestPlansOfRandomObjects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string) string {
			return rapid.SampledFrom([]string{"0", "1", "2", "3", "5", "null"}).Draw(t, label)
		}
		const pod = `"template": {"spec": {}}`
		text := rapid.SampledFrom([]string{
			`{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {
				"enableInTreeAutoscaling": ` + rapid.SampledFrom([]string{"true", "false"}).Draw(t, "auto") + `,
				"headGroupSpec": {` + pod + `}, "workerGroupSpecs": [
				{"groupName": "a", "replicas": ` + n("a") + `, "minReplicas": ` + n("least") + `,
				"numOfHosts": ` + n("hosts") + `, ` + pod + `},
				{"groupName": "b", "replicas": ` + n("b") + `, "maxReplicas": ` + n("most") + `, ` + pod + `}]}}`,
			`{"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "t"}, "spec": {
				"runPolicy": {"schedulingPolicy": {"minAvailable": ` + n("least") + `}},
				"tfReplicaSpecs": {"Chief": {"replicas": ` + n("chief") + `, ` + pod + `},
				"PS": {"replicas": ` + n("ps") + `, ` + pod + `},
				"Worker": {"replicas": ` + n("w") + `, ` + pod + `}}}}`,
			`{"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "g"}, "spec": ` +
				`{"replicas": ` +
				n("parts") + `, "template": {"cliques": [
				{"name": "a", "spec": {"replicas": ` + n("a") + `, "podSpec": {}}},
				{"name": "b", "spec": {"replicas": ` + n("b") + `, "minAvailable": ` + n("least") + `, "podSpec": {}}}],
				"podCliqueScalingGroups": [{"name": "s", "replicas": ` + n("sets") + `,
				"minAvailable": ` + n("first") + `,
				"cliqueNames": ["b"]}]}}}`,
			`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j",
				"annotations": {"tenon.sh/gang-min": ` +
				rapid.SampledFrom([]string{"null", `"all"`, `"3"`}).Draw(t, "wish") + `}},
				"spec": {"replicatedJobs": [
				{"name": "a", "replicas": ` + n("a") + `, "template": {"spec": {
				"parallelism": ` + n("p") + `, "completions": ` + n("p") + `, ` + pod + `}}},
				{"name": "b", "replicas": ` + n("b") + `, "template": {"spec": {
				"parallelism": ` + n("q") + `, "completions": ` + n("c") + `, ` + pod + `}}}]}}`,
		}).Draw(t, "object")
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		group, version := SplitAPIVersion(object["apiVersion"].(string))
		p, err := Builtin().Find(group, version, object["kind"].(string)).Plan(object, terms())
		if wrong := (*ValueError)(nil); err != nil && !errors.As(err, &wrong) {
			t.Fatalf("error %v", err)
		}
		if err == nil {
			checkPlan(t, &p)
		}
	})
}

// FuzzPlan holds that no object makes a rule panic, and that each plan keeps its promises.
func FuzzPlan(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	testkit.Check(f, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		testkit.Check(f, err)
		for line := range strings.Lines(string(text)) {
			f.Add(line)
		}
	}
	table := Builtin()
	f.Fuzz(func(t *testing.T, text string) {
		var object map[string]any
		if json.Unmarshal([]byte(text), &object) != nil {
			return
		}
		for _, r := range table.Rules() {
			if p, err := r.Plan(object, terms()); err == nil && len(p.Pods) < 100 {
				checkPlan(t, &p)
			}
			_, _ = r.Objects(object) // no panic
		}
	})
}

// TestWhatPodsAreMadeOf: names of the object count where the template has none, and the object is not changed.
func TestWhatPodsAreMadeOf(t *testing.T) {
	t.Parallel()
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{}}
	own := map[string]any{"spec": map[string]any{"schedulerName": "mine", "priorityClassName": "high"}}
	for name, c := range map[string]struct {
		set  PodSet
		want string
	}{
		"names of the object": {
			PodSet{Template: template, Scheduler: "s", PriorityClass: "p"},
			`{"metadata":{"labels":{"a":"b"}},"spec":{"priorityClassName":"p","schedulerName":"s"}}`,
		},
		"names of the template": {
			PodSet{Template: own, Scheduler: "s", PriorityClass: "p"},
			`{"metadata":null,"spec":{"priorityClassName":"high","schedulerName":"mine"}}`,
		},
		"no names":       {PodSet{Template: template}, `{"metadata":{"labels":{"a":"b"}},"spec":{}}`},
		"a spec of pods": {PodSet{PodSpec: map[string]any{"a": 1}}, `{"spec":{"a":1}}`},
		"a spec as text": {PodSet{Template: map[string]any{"spec": "x"}}, `{"metadata":null,"spec":"x"}`},
		"some containers": {
			PodSet{Containers: []any{map[string]any{"image": "i", "other": 1}, map[string]any{"name": "n"}}},
			`{"spec":{"containers":[{"image":"i","name":"container-0","resources":null},` +
				`{"image":null,"name":"n","resources":null}]}}`,
		},
		"containers as text":          {PodSet{Containers: "x"}, `{"spec":{"containers":"x"}}`},
		"a container as text":         {PodSet{Containers: []any{"x"}}, `{"spec":{"containers":["x"]}}`},
		"a template that is a list":   {PodSet{Template: []any{}, At: "spec.t"}, "spec.t: must be an object"},
		"a role that has no template": {PodSet{Role: "worker"}, "the template of the pods of role worker is missing"},
	} {
		content, err := c.set.Content()
		text, broken := json.Marshal(content)
		testkit.Check(t, broken)
		got := string(text)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
	if spec := template["spec"].(map[string]any); len(spec) > 0 {
		t.Errorf("the template has become %v", spec)
	}
}

// TestAPodSetHasThePodsOfItsUnits: the set has pods 4 to 7 of its role, which are units 2 and 3.
func TestAPodSetHasThePodsOfItsUnits(t *testing.T) {
	t.Parallel()
	later := PodSet{Count: 4, size: 2, unit: 2, labels: map[string]Pattern{"unit": "{unit}"}}
	first := later
	first.unit = 0
	for name, c := range map[string]struct {
		set    PodSet
		labels map[string]string
		want   bool
	}{
		"the unit before it":              {later, map[string]string{"unit": "1"}, false},
		"its first unit":                  {later, map[string]string{"unit": "2"}, true},
		"its last unit":                   {later, map[string]string{"unit": "3"}, true},
		"the unit after it":               {later, map[string]string{"unit": "4"}, false},
		"no unit":                         {later, nil, false},
		"no number":                       {later, map[string]string{"unit": "x"}, false},
		"no unit, where the set is first": {first, nil, true},
		"the first unit, where it is":     {first, map[string]string{"unit": "0"}, true},
		"the unit after the first set":    {first, map[string]string{"unit": "2"}, false},
	} {
		if got := c.set.Has(c.labels); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// TestNumbersAreReadFromEveryType: decoders of JSON and YAML return different types, and a cached object has int64.
func TestNumbersAreReadFromEveryType(t *testing.T) {
	t.Parallel()
	for _, value := range []any{3, int32(3), int64(3), 3.0, json.Number("3"), "3"} {
		n, err := wholeNumber(place{value: value}, true)
		if n != 3 || err != nil {
			t.Errorf("%T: got %d, %v, want 3", value, n, err)
		}
	}
}

// TestTheOrderOfRoles: what is created after others, and when roles follow one another.
func TestTheOrderOfRoles(t *testing.T) {
	t.Parallel()
	job := decoded(t, `{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": {
		"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": {"Launcher": {}, "Worker": {}}}}`)
	p, err := ruleOf(t, job).Plan(job, terms())
	testkit.Check(t, err)
	if len(p.Pods) != 2 || !p.Pods[0].Later || p.Pods[1].Later || p.Ordered {
		t.Errorf("a launcher that waits: %+v", p)
	}
	set := decoded(t, `{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {
		"startupPolicy": {"startupPolicyOrder": "InOrder"}, "replicatedJobs": [{"name": "a"}]}}`)
	if p, err = ruleOf(t, set).Plan(set, terms()); err != nil || !p.Ordered {
		t.Errorf("a JobSet in order: %+v, %v", p, err)
	}
}

// TestASummaryNamesEightGangsAndCountsTheRest; one more is named instead.
func TestASummaryNamesEightGangsAndCountsTheRest(t *testing.T) {
	t.Parallel()
	p := Plan{}
	for i := range 10 {
		p.Gangs = append(p.Gangs, Gang{Name: fmt.Sprint("g", i), Min: 1, Members: 1 + int64(i%2)})
	}
	const eight = "g0 1, g1 1 of 2, g2 1, g3 1 of 2, g4 1, g5 1 of 2, g6 1, g7 1 of 2, "
	if got := p.Summary(); got != eight+"2 more" {
		t.Errorf("ten gangs: %q", got)
	}
	p.Gangs = p.Gangs[:9]
	if got := p.Summary(); got != eight+"g8 1" {
		t.Errorf("nine gangs: %q", got)
	}
}

package workload

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

// TestValuesThatCannotBeRead: each of them gives no plan, and the text names the value and what it must be.
func TestValuesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	ray := func(group string) string {
		return `{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": ` +
			`{"workerGroupSpecs": [` +
			group + `]}}`
	}
	torch := func(spec string) string {
		return `{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "p"}, "spec": ` + spec +
			`}`
	}
	jobset := func(meta, spec string) string {
		return `{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"` + meta +
			`}, "spec": ` +
			spec + `}`
	}
	const group = "spec.workerGroupSpecs[0]"
	for name, c := range map[string]struct{ object, want string }{
		"a number below 0": {ray(`{"groupName": "a", "replicas": -1}`), group +
			".replicas: must be a whole number from 0 to 2147483647, is -1"},
		"a number that is beyond int32": {
			ray(`{"groupName": "a", "replicas": 2147483648}`), group + ".replicas: must be a whole number",
		},
		"a number with a fraction": {ray(`{"groupName": "a", "replicas": 1.5}`), group +
			".replicas: must be a whole number"},
		"a number as text": {ray(`{"groupName": "a", "replicas": "3"}`), group +
			`.replicas: must be a whole number from 0 to 2147483647, is "3"`},
		"a product beyond the bound": {
			ray(`{"groupName": "a", "replicas": 2147483647, "numOfHosts": 2147483647}`), group + ": has",
		},
		"too many pods in all": {
			ray(`{"groupName": "a", "replicas": 60000}, {"groupName": "b", "replicas": 60000}`), "spec: has 120000 " +
				"pods: supported up to 100000",
		},
		"a role without a name": {ray(`{"replicas": 3}`), group + ": must have a name at groupName"},
		"a name that is not a string": {ray(`{"groupName": 7, "replicas": 3}`), group +
			".groupName: must be a string, is 7"},
		"two roles of one name": {
			ray(`{"groupName": "a", "replicas": 1}, {"groupName": "a", "replicas": 1}`),
			`spec.workerGroupSpecs[1]: role "a" is listed twice`,
		},
		"a role that is not an object": {ray(`"a"`), group + `: must be an object, is "a"`},
		"roles that are not a list": {
			torch(`{"pytorchReplicaSpecs": "Worker"}`),
			"spec.pytorchReplicaSpecs: must be a list",
		},
		"a spec that is not an object": {torch(`[]`), "spec: must be an object, is a list"},
		"a flag as text": {
			torch(`{"runPolicy": {"suspend": "yes"}}`),
			`spec.runPolicy.suspend: must be true or false, is "yes"`,
		},
		"a minimum as text": {torch(`{"runPolicy": {"schedulingPolicy": {"minAvailable": "2"}}, ` +
			`"pytorchReplicaSpecs": {"Worker": {}}}`), "spec.runPolicy.schedulingPolicy.minAvailable: must be a " +
			"whole number"},
		"a minimum below 0": {torch(`{"elasticPolicy": {"minReplicas": -2}, "pytorchReplicaSpecs": ` +
			`{"Worker": {}}}`), "spec.elasticPolicy.minReplicas: must be a whole number"},
		"a minimum above its role": {torch(`{"elasticPolicy": {"minReplicas": 3}, "pytorchReplicaSpecs": ` +
			`{"Worker": {"replicas": 2}}}`), "spec.pytorchReplicaSpecs.Worker: the minimum 3 of role worker is " +
			"above its 2"},
		"a mode that is not a string": {jobset("", `{"replicatedJobs": [{"name": "a", "template": {"spec": `+
			`{"completionMode": true}}}]}`), "completionMode: must be a string, is true"},
		"a wish that is not a number": {
			jobset(`, "annotations": {"tenon.sh/gang-min": "some"}`, `{}`),
			`metadata.annotations.tenon.sh/gang-min: must be all or a whole number from 1, is "some"`,
		},
		"a wish of 0": {
			jobset(`, "annotations": {"tenon.sh/gang-min": "0"}`, `{}`),
			"must be all or a whole number from 1",
		},
		"labels that are not an object": {jobset(`, "labels": []`, `{}`), "metadata.labels: must be an object"},
		"a template that is not an object": {
			jobset("", `{"replicatedJobs": [{"name": "a", "template": {"spec": {"template": `+
				`"t"}}}]}`), "spec.replicatedJobs[0].template.spec.template: must be an object",
		},
		"a role in two sets": {
			`{"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "g"},
			"spec": {"template": {
			"cliques": [{"name": "a", "spec": {}}], "podCliqueScalingGroups": [
			{"name": "s", "cliqueNames": ["a"]}, {"name": "t", "cliqueNames": ["a"]}]}}}`,
			`spec.template.podCliqueScalingGroups[1].cliqueNames[0]: role "a" is in two sets`,
		},
		"hosts below 0": {ray(`{"groupName": "a", "replicas": 1, "numOfHosts": -4}`), group + ".numOfHosts: must be"},
		"a least as text": {
			ray(`{"groupName": "a", "replicas": 1, "minReplicas": "1"}`), group + ".minReplicas: must be",
		},
		"a most that is a list": {
			ray(`{"groupName": "a", "replicas": 1, "maxReplicas": [3]}`),
			group + ".maxReplicas: must be a whole number from 0 to 2147483647, is a list",
		},
		"a count that is an object": {
			ray(`{"groupName": "a", "replicas": {"min": 1}}`),
			group + ".replicas: must be a whole number from 0 to 2147483647, is an object",
		},
		"a count that is true": {ray(`{"groupName": "a", "replicas": true}`), group + ".replicas: must be"},
		"a number beyond int64": {
			ray(`{"groupName": "a", "replicas": 9223372036854775808}`), group + ".replicas: must be",
		},
		"suspension of a group as a number": {
			ray(`{"groupName": "a", "replicas": 1, "suspend": 1}`), group + ".suspend: must be true or false, is 1",
		},
		"groups that are one object": {
			torch(`{"pytorchReplicaSpecs": {"Worker": [1]}}`), "must be an object, is a list",
		},
		"a scheduler that is not a string": {
			torch(`{"pytorchReplicaSpecs": {"Worker": {"template": {"spec": {"schedulerName": 1}}}}}`),
			"spec.pytorchReplicaSpecs.Worker.template.spec.schedulerName: must be a string, is 1",
		},
		"a spec of pods that is a list": {
			torch(`{"pytorchReplicaSpecs": {"Worker": {"template": {"spec": []}}}}`),
			"spec.pytorchReplicaSpecs.Worker.template.spec: must be an object, is a list",
		},
		"a minimum of all beyond int32": {
			torch(`{"runPolicy": {"schedulingPolicy": {"minAvailable": 4294967296}}, ` +
				`"pytorchReplicaSpecs": {"Worker": {}}}`),
			"spec.runPolicy.schedulingPolicy.minAvailable: must be a whole number",
		},
		"a policy that is a string": {
			torch(`{"runPolicy": "fast"}`), `spec.runPolicy: must be an object, is "fast"`,
		},
		"a wish below 0": {
			jobset(`, "annotations": {"tenon.sh/gang-min": "-1"}`, `{}`), "must be all or a whole number from 1",
		},
		"a wish beyond int32": {
			jobset(`, "annotations": {"tenon.sh/gang-min": "2147483648"}`, `{}`),
			"must be all or a whole number from 1",
		},
		"a wish with a fraction": {
			jobset(`, "annotations": {"tenon.sh/gang-min": "1.5"}`, `{}`), "must be all or a whole number from 1",
		},
		"a wish in a template that is not a number": {
			jobset("", `{"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"metadata": `+
				`{"annotations": {"tenon.sh/gang-min": "few"}}}}}}]}`),
			`template.metadata.annotations.tenon.sh/gang-min: must be all or a whole number from 1, is "few"`,
		},
		"annotations that are a list": {
			jobset(`, "annotations": ["a"]`, `{}`), "metadata.annotations: must be an object, is a list",
		},
		"completions below 0": {
			jobset("", `{"replicatedJobs": [{"name": "a", "template": {"spec": {"completions": -1}}}]}`),
			"spec.replicatedJobs[0].template.spec.completions: must be",
		},
		"an order that is not a string": {
			jobset("", `{"startupPolicy": {"startupPolicyOrder": 1}}`),
			"spec.startupPolicy.startupPolicyOrder: must be a string, is 1",
		},
		"restarts below 0": {
			`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {}, ` +
				`"status": {"restarts": -1}}`, "status.restarts: must be",
		},
		"groups of a size as text": {
			`{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l"}, ` +
				`"spec": {"leaderWorkerTemplate": {"size": "3"}}}`, "spec.leaderWorkerTemplate.size: must be",
		},
		"a policy of restarts that is not a string": {
			`{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l"}, ` +
				`"spec": {"leaderWorkerTemplate": {"restartPolicy": 1}}}`,
			"spec.leaderWorkerTemplate.restartPolicy: must be a string, is 1",
		},
		"more groups than there may be pods": {
			`{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l"}, ` +
				`"spec": {"replicas": 100001}}`, "supported up to 100000",
		},
		"two tasks of one name": {
			`{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": ` +
				`{"tasks": [{"name": "a"}, {"name": "a"}]}}`, `spec.tasks[1]: role "a" is listed twice`,
		},
		"a priority class that is not a string": {
			`{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, "spec": ` +
				`{"priorityClassName": 9, "tasks": [{"name": "a", "template": {"spec": {}}}]}}`,
			"spec.priorityClassName: must be a string, is 9",
		},
		"sets that are repeated too often": {
			`{"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "g"},
			"spec": {"template": {"cliques": [{"name": "a", "spec": {}}], "podCliqueScalingGroups": [
			{"name": "s", "cliqueNames": ["a"], "replicas": 100001}]}}}`, "has more than 100000 pods",
		},
		"a minimum of sets as text": {
			`{"apiVersion": "grove.io/v1alpha1", "kind": "PodCliqueSet", "metadata": {"name": "g"},
			"spec": {"template": {"cliques": [{"name": "a", "spec": {}}], "podCliqueScalingGroups": [
			{"name": "s", "cliqueNames": ["a"], "minAvailable": "1"}]}}}`, "minAvailable: must be a whole number",
		},
		"a size that is a string": {
			`{"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": {"name": "m"}, "spec": ` +
				`{"size": "4"}}`, `spec.size: must be a whole number from 0 to 2147483647, is "4"`,
		},
		"an object without a spec that is one": {
			`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": 3}`,
			"spec: must be an object, is 3",
		},
		"metadata that are text": {
			`{"apiVersion": "batch/v1", "kind": "Job", "metadata": "j", "spec": {}}`,
			`metadata: must be an object, is "j"`,
		},
		"a name of an object that is a number": {
			`{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": 5}, "spec": {}}`,
			"metadata.name: must be a string, is 5",
		},
	} {
		object := decoded(t, c.object)
		_, err := ruleOf(t, object).Plan(object, terms())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestNoGangsWithAReason has objects whose pods are planned, and start one by one.
func TestNoGangsWithAReason(t *testing.T) {
	t.Parallel()
	const pod = `"template": {"spec": {}}`
	for name, c := range map[string]struct{ object, want string }{
		"a minimum above the pods that start together": {
			`{"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": {
			"launcherCreationPolicy": "WaitForWorkersReady", "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
			"mpiReplicaSpecs": {"Launcher": {` + pod + `}, "Worker": {"replicas": 2, ` + pod + `}}}}`,
			"the minimum 3 is above the number of pods that start together, 2",
		},
		"more gangs than can start together": {
			`{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": ` +
				`{"workerGroupSpecs": [` +
				func() string {
					var groups []string
					for i := range 65 {
						groups = append(groups, `{"groupName": "g`+strings.Repeat("a", i)+`", "replicas": 2, `+pod+`}`)
					}
					return strings.Join(groups, ",")
				}() + `]}}`,
			"65 gangs would start together: supported up to 64",
		},
		"a wish for pods that are created one after the other": {
			`{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s", "annotations":
			{"tenon.sh/gang-min": "all"}}, "spec": {"replicas": 3, ` + pod + `}}`,
			"its pods are created one after the other",
		},
	} {
		object := decoded(t, c.object)
		p, err := ruleOf(t, object).Plan(object, terms())
		testkit.Check(t, err)
		if p.Reason != c.want || len(p.Gangs) > 0 || len(p.Pods) == 0 {
			t.Errorf("%s: got %q, %+v, want %q", name, p.Reason, p.Gangs, c.want)
		}
	}
}

// TestTheSchedulerOfTheObjectCountsForTemplatesWithoutOne: Volcano gives pods the name of their Job's scheduler, and a
// Job without a name gets volcano.
func TestTheSchedulerOfTheObjectCountsForTemplatesWithoutOne(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ job, template, scheduler, gangs string }{
		"the template names one": {
			`"schedulerName": "volcano", `, `"schedulerName": "tenon-scheduler"`, "volcano", "v-w 2",
		},
		"the Job names ours":    {`"schedulerName": "tenon-scheduler", `, "", "tenon-scheduler", "v-w 2"},
		"the Job names another": {`"schedulerName": "other", `, "", "other", ""},
		"neither names one":     {"", "", "volcano", ""},
		"the template names another": {
			`"schedulerName": "tenon-scheduler", `, `"schedulerName": "volcano"`, "tenon-scheduler", "",
		},
	} {
		object := decoded(t, `{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "v"}, `+
			`"spec": {`+c.job+`"tasks": [{"name": "w", "replicas": 2, "template": {"spec": {`+c.template+`}}}]}}`)
		p, err := ruleOf(t, object).Plan(object, terms())
		testkit.Check(t, err)
		if len(p.Pods) != 1 || p.Pods[0].Scheduler != c.scheduler || p.Summary() != c.gangs {
			t.Errorf("%s: got %q, scheduler of %+v, want %q, %q", name, p.Summary(), p.Pods, c.gangs, c.scheduler)
		}
	}
}

// TestPodsOutsideTheGangs: what a template says of gangs comes before the rule.
func TestPodsOutsideTheGangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ meta, master, want string }{
		"nothing is said":     {"{}", `{"spec": {}}`, "p-master 1, p-worker 2"},
		"the object opts out": {`{"labels": {"tenon.sh/gang": "off"}}`, `{"spec": {}}`, ""},
		"a template opts out": {
			"{}", `{"metadata": {"labels": {"tenon.sh/gang": "off"}}, "spec": {}}`,
			"p-worker 2",
		},
		"another value does not opt out": {
			"{}", `{"metadata": {"labels": {"tenon.sh/gang": "on"}}, "spec": {}}`,
			"p-master 1, p-worker 2",
		},
		"a template names a gang": {
			"{}", `{"metadata": {"annotations": {"example.com/gang": "g"}}, "spec": {}}`,
			"p-worker 2",
		},
		"a label names a gang": {
			"{}", `{"metadata": {"labels": {"example.com/gang": "g"}}, "spec": {}}`,
			"p-worker 2",
		},
		"a field names a gang": {"{}", `{"spec": {"schedulingGroup": {"podGroupName": "g"}}}`, "p-worker 2"},
		"another scheduler":    {"{}", `{"spec": {"schedulerName": "volcano"}}`, "p-worker 2"},
		"a number for all roles": {
			`{"annotations": {"tenon.sh/gang-min": "2"}}`, `{"spec": {}}`,
			"p-master 1, p-worker 1 of 2",
		},
		"a number in a template": {"{}", `{"metadata": {"annotations": {"tenon.sh/gang-min": "2"}}, "spec": ` +
			`{}}`, "p-master 1, p-worker 1 of 2"},
	} {
		object := decoded(t, `{"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": `+c.meta+`, "spec": {
			"pytorchReplicaSpecs": {"Master": {"template": `+c.master+`},
			"Worker": {"replicas": 2, "template": {"spec": {}}}}}}`)
		object["metadata"].(map[string]any)["name"] = "p"
		p, err := ruleOf(t, object).Plan(object, terms())
		testkit.Check(t, err)
		if got := p.Summary(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestPathsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", ".", "a.", ".a", "a..b", "a[", "a[]", "a[x]", `a["k`, `a[""]`, "a[=x]", "a[n=]", "a[0]", "a " +
			"b", "$a", "a[*]b", "$..a", "a]",
	} {
		if _, err := ParsePath(text); err == nil || !strings.Contains(err.Error(), "path ") {
			t.Errorf("%q is accepted: %v", text, err)
		}
	}
}

func TestPathsThatAreRead(t *testing.T) {
	t.Parallel()
	root := place{value: decoded(t, `{"a": {"b": [{"n": "x", "c": 1}, {"n": "y", "c": 2}, null], "k.l": 3, "m": `+
		`{"q": 4, "p": 5}}}`)}
	from := place{value: root.value.(map[string]any)["a"], name: "a"}
	for text, want := range map[string]string{
		"b[*].c":        "a.b[0].c=1 a.b[1].c=2",
		"$.a.b[n=y].c":  "a.b[1].c=2",
		`$.a["k.l"]`:    "a.k.l=3",
		"m[*]":          "a.m.p=5 a.m.q=4",
		"gone.further":  "",
		"b[n=z].c":      "",
		`$["a"]["k.l"]`: "a.k.l=3",
	} {
		p, err := ParsePath(text)
		testkit.Check(t, err)
		found, err := p.find(root, from)
		testkit.Check(t, err)
		var got []string
		for _, f := range found {
			got = append(got, f.name+"="+shown(f.value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", text, got, want)
		}
	}
}

// FuzzPath holds that a path that is read is written back, and evaluates without a panic.
func FuzzPath(f *testing.F) {
	f.Add("$.a.b[*].c")
	f.Add(`a["k"][n=x]`)
	root := place{value: map[string]any{"a": []any{map[string]any{"n": "x"}}}}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePath(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Errorf("%q is written as %q", text, p)
		}
		_, _ = p.find(root, root) // no panic
	})
}

// TestRulesThatAreRefused names the field of each problem.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	const head = `"group": "g.example", "versions": ["v1"], "kind": "K", "default": "Grouped"`
	for name, c := range map[string]struct{ rule, want string }{
		"no kind":    {`{"versions": ["v1"], "default": "Never"}`, "kind: must name a kind"},
		"no version": {`{"kind": "K", "default": "Never"}`, "versions: must list at least one version"},
		"an unknown default": {
			`{"kind": "K", "versions": ["v1"], "default": "Maybe"}`,
			`default: "Maybe" is not allowed: use Grouped, Never, Parent`,
		},
		"no role": {`{` + head + `}`, "roles: must list at least one role, for default is Grouped"},
		"a role nowhere": {
			`{` + head + `, "roles": [{"name": "a"}]}`,
			"roles[0].at: must name the role, or the list of roles",
		},
		"a negative default": {`{` + head + `, "roles": [{"at": "spec", "count": {"at": "n", "default": ` +
			`-1}}]}`, "roles[0].count.default: must be a whole number from 0 to 2147483647, is -1"},
		"a negative minus": {`{` + head + `, "roles": [{"at": "spec", "count": {"at": "n", "minus": ` +
			`-1}}]}`, "roles[0].count.minus: must be a whole number from 0 to 2147483647, is -1"},
		"an amount of nothing": {
			`{` + head + `, "roles": [{"at": "spec", "min": {}}]}`,
			"roles[0].min: must have at or default",
		},
		"a negative first": {
			`{` + head + `, "roles": [{"at": "spec", "first": -1}]}`,
			"roles[0].first: must be 0 or more, is -1",
		},
		"a placeholder": {
			`{` + head + `, "gang": "{job}", "roles": [{"at": "spec"}]}`,
			"gang: {job} is not a placeholder: use {owner}",
		},
		"a placeholder of a label": {
			`{` + head + `, "roles": [{"at": "spec", "labels": {"k": "{n}"}}]}`,
			"roles[0].labels.k: {n} is not a placeholder",
		},
		"two comparisons": {`{` + head + `, "roles": [{"at": "spec"}], "suspended": [{"at": "a", ` +
			`"equals": true, "present": true}]}`, "suspended[0]: must have role, or at and one of"},
		"no comparison": {
			`{` + head + `, "roles": [{"at": "spec", "later": [{"at": "a"}]}]}`,
			"roles[0].later[0]: must have role, or at and one of",
		},
		"a comparison with a number": {`{` + head + `, "roles": [{"at": "spec", "later": [{"at": "a", "equals": ` +
			`3}]}]}`, "roles[0].later[0]: equals must be true, false or a string"},
		"covers without a kind": {
			`{` + head + `, "roles": [{"at": "spec"}], "covers": ["batch/"]}`,
			`covers[0]: "batch/" must be GROUP/KIND`,
		},
		"sets without paths": {
			`{` + head + `, "roles": [{"at": "spec"}], "sets": {"at": "spec.sets"}}`,
			"sets.nameAt: must be a path",
		},
		"a child without version": {`{` + head + `, "roles": [{"at": "spec"}], "children": [{"at": "spec.c", ` +
			`"kind": "C"}]}`, "children[0]: must have at, and apiVersion and kind"},
	} {
		var r Rule
		testkit.Check(t, json.Unmarshal([]byte(c.rule), &r))
		var got []string
		for _, p := range r.Problems() {
			got = append(got, p.Field+": "+p.Text)
		}
		if !strings.Contains(strings.Join(got, "\n"), c.want) {
			t.Errorf("%s: got %q, want %s", name, got, c.want)
		}
	}
}

func TestRulesOfUsers(t *testing.T) {
	t.Parallel()
	read := func(text string) *Rule {
		var r Rule
		testkit.Check(t, json.Unmarshal([]byte(text), &r))
		return &r
	}
	own := read(`{"group": "kubeflow.org", "versions": ["v1"], "kind": "MPIJob", "default": "Never"}`)
	table, problems := Builtin().With([]*Rule{own})
	if len(problems) > 0 || table.Find("kubeflow.org", "v1", "MPIJob") != own {
		t.Errorf("the rule of a user is not taken: %v", problems)
	}
	if r := table.Find("kubeflow.org", "v2beta1", "MPIJob"); r == nil || r.Default != Grouped {
		t.Errorf("the other version has the rule %+v", r)
	}
	if r := Builtin().Find("kubeflow.org", "v1", "MPIJob"); r.Default != Grouped {
		t.Error("the built-in table has changed")
	}
	_, problems = Builtin().With([]*Rule{own, read(`{"group": "kubeflow.org", "versions": ["v2", "v1"], "kind": ` +
		`"MPIJob", "default": "Never"}`)})
	if want := (Problem{"[1].kind", "version v1 of kubeflow.org/MPIJob has the rule [0] too"}); len(problems) != 1 ||
		problems[0] != want {
		t.Errorf("rules that overlap: %v, want %v", problems, want)
	}
	_, problems = Builtin().With([]*Rule{read(`{"group": "batch", "versions": ["v1"], "kind": "Job", "default": ` +
		`"Never", "covers": ["jobset.x-k8s.io/JobSet"]}`)})
	if want := (Problem{"[0].covers", "batch/Job and jobset.x-k8s.io/JobSet cover each " +
		"other"}); len(problems) != 1 || problems[0] != want {
		t.Errorf("kinds that cover each other: %v, want %v", problems, want)
	}
}

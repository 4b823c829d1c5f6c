package workload

import (
	"errors"
	"strings"
	"testing"
)

// above returns what reads the objects of a chain, each decoded from JSON; the first one is the pod's owner.
func above(t *testing.T, objects ...string) (Link, Read) {
	t.Helper()
	pod := Link{Namespace: "ns", Version: "v1", Kind: "Pod", Name: "p"}
	links, contents := make([]Link, len(objects)), make([]map[string]any, len(objects))
	for i := len(objects) - 1; i >= 0; i-- {
		o := decoded(t, objects[i])
		group, version := SplitAPIVersion(o["apiVersion"].(string))
		meta := o["metadata"].(map[string]any)
		links[i] = Link{
			Namespace: "ns", Group: group, Version: version, Kind: o["kind"].(string), Name: meta["name"].(string),
			UID: "u-" + meta["name"].(string),
		}
		labels, _ := meta["labels"].(map[string]any)
		if links[i].Off = labels["tenon.sh/gang"] == "off"; i+1 < len(links) {
			links[i].Owner = &links[i+1]
		}
		contents[i] = o
	}
	pod.Owner = &links[0]
	return pod, func(want Link) (Link, map[string]any, error) {
		for i, l := range links {
			if l.UID == want.UID {
				return l, contents[i], nil
			}
		}
		return Link{}, nil, ErrNotFound
	}
}

const (
	rayObject = `{"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": {
		"headGroupSpec": {"template": {"spec": {}}}, "workerGroupSpecs": [
		{"groupName": "a", "replicas": 2, "template": {"spec": {}}}]}}`
	jobSetObject = `{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": {
		"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 2, "completions": 2,
		"template": {"spec": {}}}}}]}}`
	jobOfSet = `{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j-w-0"}, "spec": {"parallelism": 2}}`
	lwsReady = `{"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "l"},
		"spec": {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3, "workerTemplate": {"spec": {}}}}}`
	setOf = `{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {}}`
)

// TestTheGangOfAPod decides about pods as their operators create them.
func TestTheGangOfAPod(t *testing.T) {
	t.Parallel()
	worker := map[string]string{"ray.io/cluster": "r", "ray.io/group": "a", "ray.io/node-type": "worker"}
	parts := func(job, attempt string) map[string]string {
		return map[string]string{
			"jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/replicatedjob-name": "w",
			"jobset.sigs.k8s.io/job-index": job, "jobset.sigs.k8s.io/restart-attempt": attempt,
		}
	}
	lws := func(worker string) map[string]string {
		return map[string]string{
			"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "0",
			"leaderworkerset.sigs.k8s.io/worker-index": worker,
		}
	}
	const rayJob = `{"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "rj"%s}, "spec": {}}`
	parent := func(meta string) string { return strings.Replace(rayJob, "%s", meta, 1) }
	for name, c := range map[string]struct {
		chain   []string
		labels  map[string]string
		want    string
		unknown bool
	}{
		"a worker":                {[]string{rayObject}, worker, "r-a", false},
		"a worker below a RayJob": {[]string{rayObject, parent("")}, worker, "r-a", false},
		"an object above opts out": {
			[]string{rayObject, parent(`, "labels": {"tenon.sh/gang": "off"}`)}, worker, "", false,
		},
		"the submitter of a RayJob": {[]string{jobOfSet, parent("")}, map[string]string{
			"batch.kubernetes.io/job-name": "j-w-0",
		}, "", false},
		"a role that was read too early": {
			[]string{rayObject},
			map[string]string{"ray.io/cluster": "r", "ray.io/group": "b", "ray.io/node-type": "worker"},
			"", true,
		},
		"a pod of a Job below a JobSet": {[]string{jobOfSet, jobSetObject}, parts("0", "0"), "j-w-0", false},
		"a restart that the object does not show yet": {
			[]string{jobOfSet, jobSetObject}, parts("0", "3"), "j-w-3", false,
		},
		"an attempt that is not a number": {[]string{jobOfSet, jobSetObject}, parts("0", "x"), "", true},
		"a leader that comes first":       {[]string{setOf, lwsReady}, lws("0"), "", false},
		"a worker of that leader":         {[]string{setOf, lwsReady}, lws("2"), "l-0", false},
		"an unknown kind above": {
			[]string{rayObject, `{"apiVersion": "example.com/v1", "kind": "Platform", "metadata": {"name": "x"}}`},
			worker, "r-a", false,
		},
		"pods of a ReplicaSet": {
			[]string{`{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"}}`}, nil, "", false,
		},
		"a suspended object has no pods": {
			[]string{strings.Replace(rayObject, `"spec": {`, `"spec": {"suspend": true, `, 1)}, worker, "", false,
		},
	} {
		pod, read := above(t, c.chain...)
		d, err := Builtin().Decide(pod, c.labels, terms(), read)
		if err != nil || d.Gang != c.want || d.Unknown != c.unknown {
			t.Errorf("%s: got gang %q, unknown %t, %v; want %q, %t", name, d.Gang, d.Unknown, err, c.want, c.unknown)
		}
	}
}

// TestOwnersThatAreNotRead: only one above the object that decides may be left unread, and only where no rule knows it.
func TestOwnersThatAreNotRead(t *testing.T) {
	t.Parallel()
	platform := `{"apiVersion": "example.com/v1", "kind": "Platform", "metadata": {"name": "x"}}`
	rayJob := `{"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "rj"}}`
	for name, c := range map[string]struct {
		chain  []string
		hidden string
		fails  bool
	}{
		"an unknown kind above the object":    {[]string{rayObject, platform}, "x", false},
		"an unknown kind below the object":    {[]string{platform, rayObject}, "x", true},
		"a kind with a rule above the object": {[]string{rayObject, rayJob}, "rj", true},
		"the object itself":                   {[]string{rayObject}, "r", true},
		"a kind whose pods always start one by one": {
			[]string{`{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}}`}, "d", false,
		},
	} {
		pod, read := above(t, c.chain...)
		_, err := Builtin().Decide(pod, nil, terms(), func(want Link) (Link, map[string]any, error) {
			if want.Name == c.hidden {
				return Link{}, nil, errors.New("forbidden")
			}
			return read(want)
		})
		if (err != nil) != c.fails {
			t.Errorf("%s: got %v, want an error: %t", name, err, c.fails)
		}
	}
}

// TestAValueThatCannotBeReadNamesItsObject: an Event is about the object, not about each of its pods.
func TestAValueThatCannotBeReadNamesItsObject(t *testing.T) {
	t.Parallel()
	pod, read := above(t, strings.Replace(rayObject, `"replicas": 2`, `"replicas": -2`, 1))
	d, err := Builtin().Decide(pod, nil, terms(), read)
	if wrong := (*ValueError)(nil); !errors.As(err, &wrong) || d.Owner.Name != "r" || d.Gang != "" {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestWhoseNamespacesFormGangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grouping Grouping
		labels   map[string]string
		want     bool
	}{
		"Declared":                          {Declared, nil, true},
		"Declared, with the label off":      {Declared, map[string]string{"off": "off"}, false},
		"Declared, with another value":      {Declared, map[string]string{"off": "no"}, true},
		"OptIn":                             {OptIn, nil, false},
		"OptIn, in a namespace that asks":   {OptIn, map[string]string{"ask": "auto"}, true},
		"OptIn, in one that requires":       {OptIn, map[string]string{"ask": "required"}, true},
		"OptIn, with another value":         {OptIn, map[string]string{"ask": "yes"}, false},
		"OptIn, in one that has both":       {OptIn, map[string]string{"ask": "auto", "off": "off"}, false},
		"Off":                               {Off, map[string]string{"ask": "required"}, false},
		"a value that no configuration has": {"", nil, false},
	} {
		if got := c.grouping.Allows(c.labels, "off", "ask"); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestIgnoredKinds: the API server is not asked about pods of kinds that no rule can group.
func TestIgnoredKinds(t *testing.T) {
	t.Parallel()
	table := Builtin()
	if !table.Ignores("apps", "v1", "ReplicaSet") || table.Ignores("batch", "v1", "Job") ||
		table.Ignores("apps", "v1", "StatefulSet") || table.Ignores("example.com", "v1", "Thing") {
		t.Error("the ignored kinds are others")
	}
	more, problems := table.With([]*Rule{{
		Group: "example.com", Versions: []string{"v1"}, Kind: "Thing", Default: Grouped,
		Covers: []string{"apps/ReplicaSet"},
	}})
	if len(problems) > 0 || more.Ignores("apps", "v1", "ReplicaSet") {
		t.Errorf("a kind that another one covers is ignored: %v", problems)
	}
}

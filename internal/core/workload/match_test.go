package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestWhichOwnerDecides walks from a pod up. Each chain lists KIND of API versions from the pod's owner upwards.
func TestWhichOwnerDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chain []string
		want  string
	}{
		"a kind that is grouped": {[]string{"ray.io/v1 RayCluster"}, "RayCluster 0"},
		"a parent above it":      {[]string{"ray.io/v1 RayCluster", "ray.io/v1 RayJob"}, "RayCluster 0"},
		"a kind that covers Jobs": {[]string{
			"batch/v1 Job", "jobset.x-k8s.io/v1alpha2 JobSet",
			"trainer.kubeflow.org/v1alpha1 TrainJob",
		}, "JobSet 1"},
		"a parent that covers nothing": {[]string{"batch/v1 Job", "batch/v1 CronJob"}, "Job 0"},
		"workers of a LeaderWorkerSet": {[]string{
			"apps/v1 StatefulSet", "v1 Pod", "apps/v1 StatefulSet",
			"leaderworkerset.x-k8s.io/v1 LeaderWorkerSet",
		}, "LeaderWorkerSet 3"},
		"a resource step of a Workflow": {
			[]string{"kubeflow.org/v1 PyTorchJob", "argoproj.io/v1alpha1 Workflow"},
			"PyTorchJob 0",
		},
		"a kind above one that is grouped": {[]string{
			"kubeflow.org/v1 PyTorchJob",
			"jobset.x-k8s.io/v1alpha2 JobSet",
		}, "PyTorchJob 0"},
		"unknown kinds are walked through": {[]string{"example.com/v1 Thing", "ray.io/v1 RayCluster"}, "RayCluster 1"},
		"a version without a rule":         {[]string{"ray.io/v2 RayCluster"}, "none"},
		"only unknown kinds":               {[]string{"example.com/v1 Thing"}, "none"},
		"a pod without owner":              {nil, "none"},
		"six owners": {[]string{
			"e.example/v1 A", "e.example/v1 B", "e.example/v1 C", "e.example/v1 D", "e.example/v1 E", "ray.io/v1 " +
				"RayCluster",
		}, "RayCluster 5"},
	} {
		pod, lookup := chainOf(c.chain)
		r, owner, err := Builtin().Match(pod, lookup)
		got := "none"
		if r != nil {
			got = owner.String()
		}
		if err != nil || got != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.want)
		}
	}
}

// chainOf returns a pod and its owners, named by their positions.
func chainOf(kinds []string) (Link, func(Link) (Link, error)) {
	links := make([]Link, len(kinds))
	for i := len(kinds) - 1; i >= 0; i-- {
		apiVersion, kind, _ := strings.Cut(kinds[i], " ")
		group, version := SplitAPIVersion(apiVersion)
		links[i] = Link{
			Namespace: "ns", Group: group, Version: version, Kind: kind, Name: fmt.Sprint(i),
			UID: fmt.Sprint("u", i),
		}
		if i+1 < len(kinds) {
			links[i].Owner = &links[i+1]
		}
	}
	pod := Link{Namespace: "ns", Version: "v1", Kind: "Pod", Name: "p"}
	if len(links) > 0 {
		pod.Owner = &links[0]
	}
	return pod, func(want Link) (Link, error) {
		for _, l := range links {
			if l.Kind == want.Kind && l.Name == want.Name {
				return l, nil
			}
		}
		return Link{}, ErrNotFound
	}
}

// TestOwnersThatCannotBeFollowed: the pod is then in no gang.
func TestOwnersThatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	kinds := []string{"example.com/v1 A", "example.com/v1 B", "ray.io/v1 RayCluster"}
	for name, c := range map[string]struct {
		change func(*Link)
		want   string
	}{
		"a cycle": {func(l *Link) {
			l.Owner = &Link{
				Group: "example.com", Version: "v1", Kind: "A", Name: "0",
				UID: "u0",
			}
		}, "the owners of pod p are a cycle: A 0 is above itself"},
		"an owner of itself": {func(l *Link) {
			l.Owner = &Link{Group: "ray.io", Version: "v1", Kind: "RayCluster", Name: "2", UID: "u2"}
		}, "cycle: RayCluster 2 is above itself"},
		"an owner elsewhere": {
			func(l *Link) { l.Namespace = "other" },
			`the owner RayCluster 2 is in namespace "other", the pod in "ns"`,
		},
		"an owner that was replaced": {
			func(l *Link) { l.UID = "new" },
			`the owner RayCluster 2 was created again: its uid is "new", the reference has "u2"`,
		},
		"an owner that goes": {func(l *Link) { l.Deleted = true }, "the owner RayCluster 2 is being deleted"},
		"an owner that does not exist": {func(l *Link) {
			l.Owner = &Link{
				Group: "ray.io", Version: "v1",
				Kind: "RayJob", Name: "g",
			}
		}, "read the owner RayJob g: not found"},
	} {
		pod, lookup := chainOf(kinds)
		r, _, err := Builtin().Match(pod, func(want Link) (Link, error) {
			found, err := lookup(want)
			if err == nil && found.Kind == "RayCluster" {
				c.change(&found)
			}
			return found, err
		})
		if r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want %s", name, r, err, c.want)
		}
	}
	pod, lookup := chainOf([]string{
		"e.example/v1 A", "e.example/v1 B", "e.example/v1 C", "e.example/v1 D",
		"e.example/v1 E", "e.example/v1 F", "ray.io/v1 RayCluster",
	})
	if r, _, err := Builtin().Match(pod, lookup); r != nil || err == nil ||
		err.Error() != "pod p has more than 6 owners" {
		t.Errorf("seven owners: got %v, %v", r, err)
	}
	failed := errors.New("timed out")
	if _, _, err := Builtin().Match(pod, func(Link) (Link, error) { return Link{}, failed }); !errors.Is(err, failed) {
		t.Errorf("a lookup that fails: got %v", err)
	}
}

func TestNamesOfGangObjects(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 53) + "-" + strings.Repeat("b", 30)
	none := func(string) bool { return false }
	if got := ObjectName("r-gpu", "u", none); got != "r-gpu" {
		t.Errorf("a short name became %s", got)
	}
	cut := ObjectName(long, "u", none)
	if len(cut) > 63 || !strings.HasPrefix(cut, strings.Repeat("a", 53)+"-") || strings.Contains(cut, "--") {
		t.Errorf("a long name became %s", cut)
	}
	if other := ObjectName(long, "v", none); other == cut {
		t.Error("two owners have the same name")
	}
	for name, begins := range map[string]string{"r-GPU_Large": "r-gpu-large-", "__": "gang-", "r.1": "r-1-"} {
		if got := ObjectName(name, "u", none); !strings.HasPrefix(got, begins) || len(got) != len(begins)+8 {
			t.Errorf("%s, which no object can have, became %s", name, got)
		}
	}
	taken := ObjectName("r-gpu", "u", func(name string) bool { return name == "r-gpu" })
	if !strings.HasPrefix(taken, "r-gpu-") || len(taken) != len("r-gpu-")+8 {
		t.Errorf("a name that another object has became %s", taken)
	}
}

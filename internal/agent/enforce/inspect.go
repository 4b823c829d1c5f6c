package enforce

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// maxDrifts bounds what is remembered; the oldest goes first.
const maxDrifts = 1024

// noteDrift takes a record of the engine.
func (t *Tree) noteDrift(r apply.Record) {
	now := t.o.Clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.drifts[r.Group]
	switch {
	case r.Kind == apply.Drifted:
		t.drifts[r.Group] = view.Drift{File: r.File, Want: r.Want, Got: r.Got, Seen: now}
	case r.Kind == apply.DriftRepaired && known && last.File == r.File && last.Repaired == nil:
		last.Repaired = &now
		t.drifts[r.Group] = last
	}
	if len(t.drifts) > maxDrifts {
		delete(t.drifts, slices.MinFunc(slices.Collect(maps.Keys(t.drifts)), func(a, b string) int {
			return t.drifts[a].Seen.Compare(t.drifts[b].Seen)
		}))
	}
}

func (t *Tree) driftOf(group string) *view.Drift {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, ok := t.drifts[group]; ok {
		return &last
	}
	return nil
}

// Describe returns what the kernel has for a pod at this moment.
func (t *Tree) Describe(pod *corev1.Pod, mode annotation.Mode) view.Cgroups {
	out := view.Cgroups{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: t.o.Node, Mode: mode,
		Cgroup: t.o.Engine.Cgroup.Dialect().String(), Read: t.o.Clock.Now(), Groups: []view.Cgroup{},
	}
	if !t.o.Writes() {
		out.Notes = append(out.Notes, fmt.Sprintf("the agent writes no cpusets here (mode %s): the kubelet chooses",
			mode))
		return out
	}
	groups, err := t.Inspect(convert.NodeUID(pod))
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	for _, g := range groups {
		g.Path, g.Drift = t.folder(g.Path), t.driftOf(g.Path)
		out.Groups = append(out.Groups, g)
	}
	if len(groups) == 0 && err == nil {
		out.Notes = append(out.Notes, "no container of the pod has a cgroup yet")
	}
	return out
}

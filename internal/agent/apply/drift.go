package apply

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// maxDrifts is the number of groups whose last drift is kept. The oldest drift is dropped first.
const maxDrifts = 1024

// noteDrift keeps a record of the engine if it says that another program changed a group, or that this was repaired.
func (e *Enforcer) noteDrift(r Record) {
	now := e.o.Clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	last, known := e.drifts[r.Group]
	switch {
	case r.Kind == Drifted:
		e.drifts[r.Group] = view.Drift{File: r.File, Want: r.Want, Got: r.Got, Seen: now}
	case r.Kind == DriftRepaired && known && last.File == r.File && last.Repaired == nil:
		last.Repaired = &now
		e.drifts[r.Group] = last
	}
	if len(e.drifts) > maxDrifts {
		delete(e.drifts, slices.MinFunc(slices.Collect(maps.Keys(e.drifts)), func(a, b string) int {
			return e.drifts[a].Seen.Compare(e.drifts[b].Seen)
		}))
	}
}

func (e *Enforcer) lastDrift(group string) *view.Drift {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last, ok := e.drifts[group]; ok {
		return &last
	}
	return nil
}

// Describe returns the values of a pod's groups in the kernel at this moment, beside the wanted ones.
func (e *Enforcer) Describe(pod *corev1.Pod, mode annotation.Mode) view.Cgroups {
	out := view.Cgroups{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: e.o.Node, Mode: mode,
		Cgroup: e.o.Engine.Cgroup.Dialect().String(), Read: e.o.Clock.Now(), Groups: []view.Cgroup{},
	}
	if !e.o.Agent.Writes() {
		out.Notes = append(out.Notes, fmt.Sprintf("the agent writes no cpusets here (mode %s): the kubelet chooses",
			mode))
		return out
	}
	groups, err := e.Inspect(convert.NodeUID(pod))
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	for _, g := range groups {
		g.Path, g.Drift = e.folder(g.Path), e.lastDrift(g.Path)
		out.Groups = append(out.Groups, g)
	}
	if _, asks := pod.Annotations[annotation.CPUBurstKey]; asks && e.LacksBurst() {
		out.Notes = append(out.Notes, "no CPU burst: the kernel lacks "+e.o.Engine.Cgroup.Dialect().Burst()+
			", which Linux has from 5.14 on")
	}
	if len(groups) == 0 && err == nil {
		out.Notes = append(out.Notes, "no container of the pod has a cgroup yet")
	}
	return out
}

package enforce

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// drifts remembers the last change of each group by another program.
type drifts struct {
	mu   sync.Mutex // guards the field below
	last map[string]view.Drift
}

// maxDrifts bounds what is remembered; the oldest goes first.
const maxDrifts = 1024

// note takes a record of the engine.
func (d *drifts) note(r apply.Record, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch r.Kind {
	case apply.Drifted:
		if d.last == nil {
			d.last = map[string]view.Drift{}
		}
		d.last[r.Group] = view.Drift{File: r.File, Want: r.Want, Got: r.Got, Seen: now}
		d.bound()
	case apply.DriftRepaired:
		if last, ok := d.last[r.Group]; ok && last.File == r.File && last.Repaired == nil {
			last.Repaired = &now
			d.last[r.Group] = last
		}
	}
}

func (d *drifts) bound() {
	if len(d.last) <= maxDrifts {
		return
	}
	oldest := ""
	for group, drift := range d.last {
		if oldest == "" || drift.Seen.Before(d.last[oldest].Seen) {
			oldest = group
		}
	}
	delete(d.last, oldest)
}

func (d *drifts) of(group string) *view.Drift {
	d.mu.Lock()
	defer d.mu.Unlock()
	if last, ok := d.last[group]; ok {
		return &last
	}
	return nil
}

// Describe returns what the kernel has for a pod at this moment.
func (t *Tree) Describe(pod *corev1.Pod, mode probe.Mode) view.Cgroups {
	out := view.Cgroups{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Node: t.o.Node, Mode: string(mode),
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
		g.Path, g.Drift = t.folder(g.Path), t.drifts.of(g.Path)
		out.Groups = append(out.Groups, g)
	}
	if len(groups) == 0 && err == nil {
		out.Notes = append(out.Notes, "no container of the pod has a cgroup yet")
	}
	return out
}

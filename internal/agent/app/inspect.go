package app

import (
	gojson "encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
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

// Inspect returns what the kernel has for a pod of the node at this moment; false when the node has no such pod.
func (a *Agent) Inspect(namespace, name string) (view.Cgroups, bool) {
	pod := a.findPod(namespace, name)
	if pod == nil {
		return view.Cgroups{}, false
	}
	mode := a.Mode()
	out := view.Cgroups{
		Namespace: namespace, Name: name, UID: string(pod.UID), Node: a.o.Node, Mode: string(mode),
		Cgroup: a.o.Cgroup.Dialect().String(), Read: a.o.Clock.Now(), Groups: []view.Cgroup{},
	}
	if !a.o.Switches.Writes(mode) {
		out.Notes = append(out.Notes, fmt.Sprintf("the agent writes no cpusets here (mode %s): the kubelet chooses",
			mode))
		return out, true
	}
	sights, err := a.engine.Inspect(desired.NodeUID(pod))
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
	}
	for _, s := range sights {
		out.Groups = append(out.Groups, a.group(s))
	}
	if len(sights) == 0 && err == nil {
		out.Notes = append(out.Notes, "no container of the pod has a cgroup yet")
	}
	return out, true
}

// findPod returns a pod of this node that has not ended.
func (a *Agent) findPod(namespace, name string) *corev1.Pod {
	for _, pod := range a.podList() {
		if pod.Namespace == namespace && pod.Name == name && !convert.Ended(pod) {
			return pod
		}
	}
	return nil
}

func (a *Agent) group(s apply.Sight) view.Cgroup {
	g := view.Cgroup{Container: s.Container, Path: a.folder(s.Path), Gone: s.Vanished, Drift: a.drifts.of(s.Path)}
	for _, v := range s.Values {
		value := view.CgroupValue{
			File: v.File, Want: v.Want, Got: v.Got, Effective: v.Effective, State: view.Unmanaged,
			AtCreation: v.AtCreation,
			Cause:      "left to the kubelet",
		}
		switch {
		case v.Unreadable != nil:
			value.State, value.Error = view.Unreadable, v.Unreadable.Error()
		case v.Differs:
			value.State = view.Differs
		case v.Wanted:
			value.State = view.Matches
		}
		if v.Wanted {
			value.Cause = v.Cause.String()
		} else if !v.Constrained.OK() {
			value.Cause = "must not run: " + v.Constrained.Code.String()
		}
		g.Values = append(g.Values, value)
	}
	return g
}

// folder is where a group's cpuset files are.
func (a *Agent) folder(group string) string {
	root := a.o.Root.Cgroup()
	if a.o.Cgroup.Dialect() == desired.V1 {
		controller, _, _ := strings.Cut(desired.CPUs, ".")
		root = path.Join(root, controller)
	}
	return path.Join(root, group)
}

// InspectHandler answers what the kernel has for a pod, by the agent on whose node it is. agents may return other ones
// at each call.
func InspectHandler(agents func() []*Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		for _, a := range agents() {
			if answer, ok := a.Inspect(namespace, name); ok {
				writeJSON(w, http.StatusOK, answer)
				return
			}
		}
		writeJSON(w, http.StatusNotFound, map[string]string{"message": fmt.Sprintf("no pod %s/%s runs here", namespace,
			name)})
	})
}

func writeJSON(w http.ResponseWriter, status int, answer any) {
	text, err := gojson.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // who asked has gone
}

package app

import (
	gojson "encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// takeoverPhase is the reason of Events about the take-over of CPUs from a static kubelet.
const takeoverPhase = "TakeoverPhase"

// takeoverFile keeps the moment of take-over below the Root: pods that a static kubelet pinned before it keep their
// CPUs, over restarts of the agent too.
const takeoverFile = "var/lib/tenon-agent/takeover.json"

// takeoverSince returns when take-over phase 2 began on this node: what the file says, else the published annotation,
// else now, when it begins. The answer is kept in the file. A published moment in the future is not believed.
func takeoverSince(root host.Root, published string, now time.Time) (since metav1.Time, begins bool, err error) {
	file := root.Path(takeoverFile)
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return metav1.Time{}, false, fmt.Errorf("read the moment of take-over: %w", err)
	}
	for _, candidate := range []string{string(text), published} {
		t, _, err := annotation.ParseTakeover(candidate)
		if err == nil && !t.Since.IsZero() && !t.Since.After(now) {
			return t.Since, false, keepTakeover(file, t.Since)
		}
	}
	since = metav1.NewTime(now.Truncate(time.Second)) // as the annotation has it
	err = keepTakeover(file, since)
	return since, err == nil, err
}

func keepTakeover(file string, since metav1.Time) error {
	if err := keepFile(file, annotation.Takeover{Phase: 2, Since: since}.String()); err != nil {
		return fmt.Errorf("keep the moment of take-over: %w", err)
	}
	return nil
}

// forgetTakeover ends a take-over: the kubelet pins no CPUs any more, or it is the one again who does.
func forgetTakeover(root host.Root) error {
	if err := errors.Join(forgetFile(root.Path(takeoverFile)), forgetFile(root.Path(pinnedFile))); err != nil {
		return fmt.Errorf("forget the take-over: %w", err)
	}
	return nil
}

// pinnedFile keeps, below the Root, the CPUs of the pods that a static kubelet has pinned: once it is restarted with
// the policy none no other source has them, and the pods keep them until they end.
const pinnedFile = "var/lib/tenon-agent/pinned.json"

// pinned is the content of pinnedFile.
type pinned struct {
	// Boot is the kernel's boot id: no container outlives a reboot.
	Boot string `json:"boot"`
	// Until is when the static kubelet was gone; zero while it is there.
	Until metav1.Time `json:"until,omitzero"`
	// Pods are CPUs in list format, by the UID that the kubelet knows a pod by, and container.
	Pods map[string]map[string]string `json:"pods"`
}

// state returns the pins as a record of the kubelet.
func (p pinned) state() (host.CPUState, error) {
	s := host.CPUState{
		Policy: annotation.KubeletPolicyStatic, Pods: map[string][]int{},
		Containers: map[string]map[string][]int{},
	}
	for uid, containers := range p.Pods {
		s.Containers[uid] = map[string][]int{}
		var all []int
		for name, list := range containers {
			ids, err := cpuset.ParseIDs(list)
			if err != nil {
				return host.CPUState{}, err
			}
			s.Containers[uid][name] = ids
			all = append(all, ids...)
		}
		slices.Sort(all)
		s.Pods[uid] = slices.Compact(all)
	}
	return s, nil
}

// recallPins takes over what an earlier agent kept of a static kubelet that is there no more. What cannot be read
// counts as missing: the pods are the shared pool's then.
func (a *Agent) recallPins() {
	if a.isStatic() {
		return
	}
	var kept pinned
	if gojson.Unmarshal([]byte(textOf(a.o.Root.Path(pinnedFile))), &kept) != nil || kept.Boot != a.boot {
		return
	}
	if cpu, err := kept.state(); err == nil {
		a.recorded.CPU, a.state.CPU, a.until = cpu, cpu, kept.Until.Time
	}
}

// keepPins keeps the CPUs of the pods that the kubelet pins, or has pinned.
func (a *Agent) keepPins() error {
	in := a.input(a.podList())
	uids := map[types.UID]bool{}
	for _, p := range in.Pins {
		uids[p.UID] = true
	}
	kept := pinned{Boot: a.boot, Pods: map[string]map[string]string{}}
	a.mu.Lock()
	if !a.until.IsZero() {
		kept.Until = metav1.NewTime(a.until)
	}
	a.mu.Unlock()
	for _, pod := range in.Pods {
		if !uids[pod.UID] {
			continue
		}
		uid := probe.StateUID(pod)
		kept.Pods[uid] = map[string]string{}
		for name, ids := range in.State.CPU.Containers[uid] {
			kept.Pods[uid][name] = cpuset.FormatIDs(ids)
		}
	}
	text, err := gojson.Marshal(kept)
	if err == nil {
		err = keepFile(a.o.Root.Path(pinnedFile), string(text))
	}
	if err != nil {
		return fmt.Errorf("keep the CPUs of pinned pods: %w", err)
	}
	return nil
}

// endTakeover looks after the pods that a static kubelet has left pinned: its policy is none now. It returns when the
// take-over began, zero once the last of them has ended.
func (a *Agent) endTakeover() (since metav1.Time, err error) {
	a.mu.Lock()
	none := len(a.recorded.CPU.Pods)+len(a.recorded.CPU.ByID) == 0
	if !none && a.until.IsZero() {
		a.until = a.o.Clock.Now().Truncate(time.Second)
	}
	since = a.since
	a.mu.Unlock()
	if none {
		return metav1.Time{}, forgetTakeover(a.o.Root)
	}
	if since.IsZero() {
		if t, _, err := annotation.ParseTakeover(textOf(a.o.Root.Path(takeoverFile))); err == nil {
			since = t.Since
		}
	}
	if len(a.input(a.podList()).Pins) > 0 {
		return since, a.keepPins()
	}
	a.mu.Lock()
	a.recorded.CPU, a.state.CPU, a.until = host.CPUState{}, host.CPUState{}, time.Time{}
	a.mu.Unlock()
	a.status.Event(takeoverPhase,
		"the take-over has ended: no pod is left that the kubelet pinned, and its policy is none")
	a.publish()
	return metav1.Time{}, forgetTakeover(a.o.Root)
}

// textOf returns the content of a file; what cannot be read counts as missing.
func textOf(file string) string {
	text, _ := os.ReadFile(file)
	return string(text)
}

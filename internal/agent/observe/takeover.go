package observe

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// takeoverFile keeps the moment of take-over: pods that a static kubelet pinned before it keep their CPUs, over
// restarts of the agent too.
const takeoverFile = "takeover.json"

// decideMode applies the table of modes, and begins or ends a take-over.
func (b *Observer) decideMode(ctx context.Context, state *State) error {
	wish := ""
	if node := b.o.Agent.CurrentNode(); node != nil {
		wish = node.Labels[annotation.TopologyMode]
	}
	before, static := state.Mode, state.IsStatic()
	mode, conflict := probe.ModeOf(b.o.Switches, static, wish)
	state.Mode = mode
	var err error
	switch {
	case mode != annotation.ModeOwn:
		// What the kubelet pins from here on is older than the next take-over.
		state.Since, state.Until = metav1.Time{}, time.Time{}
		err = b.forgetTakeover()
	case !static:
		err = b.endTakeover(state)
	case before != annotation.ModeOwn: // what is published may still be of the last one
		err = b.takeOver(state, "")
	default:
		err = b.takeOver(state, b.o.Agent.Published(annotation.TakeoverKey))
	}
	holds, reason, text := conflict != "", "WishCannotBeMet", conflict
	if !holds {
		reason, text = "WishMet", "the topology mode is "+mode
	}
	return errors.Join(err, b.o.Status.Set(ctx, event.TopologyModeConflict, holds, reason, text))
}

// takeOver begins phase 2 of the take-over, or goes on with it: since the moment that the file says, else the published
// annotation, else now. A published moment in the future is not believed.
func (b *Observer) takeOver(state *State, published string) error {
	state.Until = time.Time{}
	text, err := b.dir.Read(takeoverFile)
	if err != nil {
		return errors.Join(fmt.Errorf("read the moment of take-over: %w", err), b.keepPins(state))
	}
	now := b.o.Clock.Now()
	since, began := metav1.NewTime(now.Truncate(time.Second)), true // as the annotation has it
	for _, candidate := range []string{published, text} {
		t, _, err := annotation.ParseTakeover(candidate)
		if err == nil && !t.Since.IsZero() && !t.Since.After(now) {
			since, began = t.Since, false
		}
	}
	state.Since = since
	err = b.dir.Write(takeoverFile, annotation.Encode(annotation.Takeover{Phase: 2, Since: since}))
	if err != nil {
		err = fmt.Errorf("keep the moment of take-over: %w", err)
	} else if began {
		b.o.Status.Event(event.TakeoverPhase,
			"phase 2: Tenon allocates the CPUs of new pods; pods that the kubelet pinned keep their CPUs until they "+
				"end")
	}
	return errors.Join(err, b.keepPins(state))
}

// forgetTakeover ends a take-over: the kubelet pins no CPUs any more, or it is the one again who does.
func (b *Observer) forgetTakeover() error {
	if err := errors.Join(b.dir.Remove(takeoverFile), b.dir.Remove(pinnedFile)); err != nil {
		return fmt.Errorf("forget the take-over: %w", err)
	}
	return nil
}

// pinnedFile keeps the CPUs of the pods that a static kubelet has pinned: once it is restarted with the policy none no
// other source has them, and the pods keep them until they end.
const pinnedFile = "pinned.json"

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
	s := host.CPUState{Policy: annotation.KubeletPolicyStatic}
	for uid, containers := range p.Pods {
		for name, list := range containers {
			ids, err := cpuset.ParseIDs(list)
			if err != nil {
				return host.CPUState{}, err
			}
			s.Put(uid, name, ids)
		}
	}
	return s, nil
}

// recallPins takes over what an earlier agent kept of a static kubelet that is there no more. What cannot be read
// counts as missing: the pods are the shared pool's then.
func (b *Observer) recallPins(state *State) {
	if state.IsStatic() {
		return
	}
	var kept pinned
	if found, err := b.dir.Load(pinnedFile, &kept); err != nil || !found || kept.Boot != b.o.Boot {
		return
	}
	if cpu, err := kept.state(); err == nil {
		state.Records.CPU, state.Until = cpu, kept.Until.Time
		b.records.Put(state.Records)
	}
}

// keepPins keeps the CPUs of the pods that the kubelet pins, or has pinned.
func (b *Observer) keepPins(state *State) error {
	pods := b.o.Agent.Pods()
	uids := map[types.UID]bool{}
	for _, p := range state.Pins(pods) {
		uids[p.UID] = true
	}
	kept := pinned{Boot: b.o.Boot, Pods: map[string]map[string]string{}}
	if !state.Until.IsZero() {
		kept.Until = metav1.NewTime(state.Until)
	}
	for _, pod := range pods {
		if !uids[pod.UID] {
			continue
		}
		uid := convert.NodeUID(pod.Pod)
		kept.Pods[uid] = map[string]string{}
		for name, ids := range state.Records.CPU.Containers[uid] {
			kept.Pods[uid][name] = cpuset.FormatIDs(ids)
		}
	}
	return b.dir.Save(pinnedFile, kept)
}

// endTakeover looks after the pods that a static kubelet has left pinned: its policy is none now. The take-over ends
// with the last of them.
func (b *Observer) endTakeover(state *State) error {
	recorded := b.records.Value()
	if len(recorded.CPU.Pods) == 0 {
		state.Since, state.Until = metav1.Time{}, time.Time{}
		return b.forgetTakeover()
	}
	if state.Until.IsZero() {
		state.Until = b.o.Clock.Now().Truncate(time.Second)
	}
	if state.Since.IsZero() {
		if text, err := b.dir.Read(takeoverFile); err == nil {
			if t, _, err := annotation.ParseTakeover(text); err == nil {
				state.Since = t.Since
			}
		}
	}
	if len(state.Pins(b.o.Agent.Pods())) > 0 {
		return b.keepPins(state)
	}
	recorded.CPU = host.CPUState{}
	b.records.Put(recorded)
	state.Since, state.Until, state.Records.CPU = metav1.Time{}, time.Time{}, host.CPUState{}
	b.o.Status.Event(event.TakeoverPhase,
		"the take-over has ended: no pod is left that the kubelet pinned, and its policy is none")
	return b.forgetTakeover()
}

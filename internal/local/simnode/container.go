package simnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
)

// stage is where a container is in its life.
type stage uint8

const (
	waiting stage = iota
	running
	exited
)

// box is one container.
type box struct {
	stage          stage
	id             string // of the last start
	began, ended   time.Time
	exitCode       int32
	restarts       int32
	reason, detail string // why it waits or ended
	// next is the earliest time of the next attempt to start; tries counts refused ones.
	next  time.Time
	tries int
	last  *corev1.ContainerStateTerminated
}

// idOf is the id of a container's nth start. That it can be computed again lets a later process find the container in
// the tree, even when the earlier one was killed before it wrote a status.
func idOf(uid types.UID, name string, restarts int32) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, name, restarts))
	return hex.EncodeToString(sum[:])
}

func (k *kubelet) hookOf(p *pod, name, id string) apply.Container {
	return apply.Container{PodUID: string(p.uid), Name: name, PodGroup: p.group, Group: path.Join(p.group, id)}
}

// meet takes up what an earlier process left of a pod.
func (k *kubelet) meet(p *pod, obj *corev1.Pod) {
	p.known = true
	k.address(p, obj.Status.PodIP)
	for _, c := range obj.Status.Conditions {
		p.since[c.Type] = c
	}
	for _, s := range slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses) {
		p.boxes[s.Name] = k.takeUp(p, s)
	}
	for _, c := range slices.Concat(obj.Spec.InitContainers, obj.Spec.Containers) {
		if p.boxes[c.Name] == nil {
			p.boxes[c.Name] = k.takeUp(p, corev1.ContainerStatus{Name: c.Name})
		}
	}
}

func (k *kubelet) takeUp(p *pod, s corev1.ContainerStatus) *box {
	b := &box{restarts: s.RestartCount, last: s.LastTerminationState.Terminated}
	if t := s.State.Terminated; t != nil {
		b.stage, b.exitCode, b.reason = exited, t.ExitCode, t.Reason
		b.began, b.ended, b.id = t.StartedAt.Time, t.FinishedAt.Time, idOf(p.uid, s.Name, s.RestartCount)
		return b
	}
	id := idOf(p.uid, s.Name, s.RestartCount)
	live := k.lives(path.Join(p.group, id))
	switch r := s.State.Running; {
	case live && r != nil:
		b.stage, b.id, b.began = running, id, r.StartedAt.Time
	case live: // killed between the start and the status
		b.stage, b.id, b.began = running, id, k.n.o.Clock.Now()
	case r != nil: // it died with the machine's files
		b.stage, b.id, b.began, b.ended = exited, id, r.StartedAt.Time, k.n.o.Clock.Now()
		b.exitCode, b.reason = 137, "ContainerStatusUnknown"
	}
	return b
}

func (k *kubelet) lives(group string) bool {
	text, err := k.n.tree.Read(group, "cgroup.procs")
	return err == nil && text != ""
}

// start runs a container once. The error says why it does not run; nothing of it is left then.
func (k *kubelet) start(ctx context.Context, p *pod, obj *corev1.Pod, c *corev1.Container, b *box) error {
	agent := k.agent()
	if agent == nil {
		return errNoAgent
	}
	hook := k.hookOf(p, c.Name, idOf(p.uid, c.Name, b.restarts))
	if err := k.create(ctx, agent, obj, c, hook); err != nil {
		k.discard(hook)
		return err
	}
	k.gate.started(obj, c, hook.Group)
	if _, err := k.n.tree.Spawn(hook.Group); err != nil {
		k.discard(hook)
		return err
	}
	b.stage, b.id, b.began = running, path.Base(hook.Group), k.n.o.Clock.Now()
	b.reason, b.detail, b.tries = "", "", 0
	return nil
}

// errNoAgent says that nobody can enforce anything at the moment: then nothing starts.
var errNoAgent = errors.New("AgentNotRunning")

// create makes the container's group, sets what the kubelet and then what the agent wants, and asks for the start.
func (k *kubelet) create(ctx context.Context, agent *hooks, obj *corev1.Pod, c *corev1.Container, hook apply.Container) error {
	if err := k.makeGroups(obj, c, hook); err != nil {
		return err
	}
	if err := k.gate.place(obj, c, hook.Group); err != nil {
		return err
	}
	rows, err := agent.Create(hook)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := k.n.tree.Write(row.Path, row.File, row.Value); err != nil {
			return err
		}
	}
	return agent.Start(ctx, hook)
}

// makeGroups makes the groups of pod and container with their CPU limits.
func (k *kubelet) makeGroups(obj *corev1.Pod, c *corev1.Container, hook apply.Container) error {
	_, err := k.n.tree.Read(hook.PodGroup, desired.QuotaV2)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := k.n.tree.MkdirAll(hook.Group); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if sum := limitOf(obj.Spec.Containers...); fresh && sum > 0 {
		if err := k.n.tree.Write(hook.PodGroup, desired.QuotaV2, quota(sum)); err != nil {
			return err
		}
	}
	if limit := limitOf(*c); limit > 0 {
		return k.n.tree.Write(hook.Group, desired.QuotaV2, quota(limit))
	}
	return nil
}

// limitOf sums CPU limits in milli-CPU; 0 when a container has none.
func limitOf(containers ...corev1.Container) int64 {
	sum := int64(0)
	for i := range containers {
		limit := containers[i].Resources.Limits.Cpu().MilliValue()
		if limit == 0 {
			return 0
		}
		sum += limit
	}
	return sum
}

// quota is a limit as cpu.max has it: microseconds of CPU per period.
func quota(milli int64) string { return strconv.FormatInt(milli*100, 10) + " 100000" }

// discard removes a container that never ran, or has ended.
func (k *kubelet) discard(hook apply.Container) {
	_ = k.n.tree.Kill(hook.Group) // a group that is not there has nothing to kill
	agent := k.agent()
	if agent != nil {
		agent.Stop(hook)
	}
	k.gate.stopped(hook.Group)
	k.removeGroup(hook.Group)
	if agent != nil {
		agent.Remove(hook)
	}
}

// removeGroup removes a group and those below it.
func (k *kubelet) removeGroup(group string) {
	names, err := k.n.tree.Children(group)
	if err != nil {
		return
	}
	for _, name := range names {
		k.removeGroup(path.Join(group, name))
	}
	_ = k.n.tree.Rmdir(group)
}

// stop ends a running container.
func (k *kubelet) stop(p *pod, name string, b *box, exitCode int32, reason string) {
	if b.stage != running {
		return
	}
	k.discard(k.hookOf(p, name, b.id))
	b.stage, b.ended, b.exitCode, b.reason = exited, k.n.o.Clock.Now(), exitCode, reason
}

// tearDown ends all containers of a pod and removes its groups.
func (k *kubelet) tearDown(p *pod) {
	for name, b := range p.boxes {
		k.stop(p, name, b, 137, "Error")
	}
	if names, err := k.n.tree.Children(p.group); err == nil {
		for _, name := range names {
			k.discard(k.hookOf(p, "", name))
		}
		_ = k.n.tree.Rmdir(p.group)
	}
	k.gate.forget(p.uid)
}

// sweep removes what an earlier process left of pods that are gone by now.
func (k *kubelet) sweep() {
	for _, dir := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		names, err := k.n.tree.Children(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			uid, isPod := strings.CutPrefix(name, "pod")
			k.mu.Lock()
			known := k.pods[types.UID(uid)] != nil
			k.mu.Unlock()
			if isPod && !known {
				k.tearDown(&pod{uid: types.UID(uid), group: path.Join(dir, name)})
			}
		}
	}
}

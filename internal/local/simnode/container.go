package simnode

import (
	"cmp"
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

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
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

// sandboxOf is a pod as the runtime reports it; obj is nil when the pod's object is deleted.
func sandboxOf(p *pod, obj *corev1.Pod) hook.Pod {
	s := hook.Pod{ID: string(p.uid), UID: string(p.uid), Namespace: p.ref.Namespace, Name: p.ref.Name, Cgroup: p.group}
	if obj != nil {
		s.Labels, s.Annotations = obj.Labels, obj.Annotations
	}
	return s
}

func containerOf(s hook.Pod, name, id string) hook.Container {
	return hook.Container{Pod: s, Name: name, ID: id, Cgroup: path.Join(s.Cgroup, id)}
}

// findRunning learns which containers an earlier process left running.
func (k *kubelet) findRunning() {
	for _, item := range k.informer.GetStore().List() {
		obj := item.(*corev1.Pod)
		for _, status := range slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses) {
			k.find(newPod(obj), obj, status)
		}
	}
}

// find takes up a container that an earlier process may have left running, and reports whether it does run.
func (k *kubelet) find(p *pod, obj *corev1.Pod, s corev1.ContainerStatus) (id string, runs bool) {
	c := containerOf(sandboxOf(p, obj), s.Name, idOf(p.uid, s.Name, s.RestartCount))
	tasks, err := k.n.tree.Read(c.Cgroup, "cgroup.procs")
	if c.Running = err == nil && tasks != ""; c.Running {
		k.keep(c)
	}
	return c.ID, c.Running
}

// keep remembers a container that runs.
func (k *kubelet) keep(c hook.Container) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.boxes[c.ID] = c
}

// running returns a container that runs; false when there is none.
func (k *kubelet) running(id string) (hook.Container, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.boxes[id]
	return c, ok
}

// meet takes up what an earlier process left of a pod.
func (k *kubelet) meet(p *pod, obj *corev1.Pod) {
	p.known = true
	k.address(p, obj.Status.PodIP)
	for _, c := range obj.Status.Conditions {
		p.since[c.Type] = c
	}
	for _, s := range slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses) {
		p.boxes[s.Name] = k.takeUp(p, obj, s)
	}
	for _, c := range slices.Concat(obj.Spec.InitContainers, obj.Spec.Containers) {
		if p.boxes[c.Name] == nil {
			p.boxes[c.Name] = k.takeUp(p, obj, corev1.ContainerStatus{Name: c.Name})
		}
	}
}

func (k *kubelet) takeUp(p *pod, obj *corev1.Pod, s corev1.ContainerStatus) *box {
	b := &box{restarts: s.RestartCount, last: s.LastTerminationState.Terminated}
	if t := s.State.Terminated; t != nil {
		b.stage, b.exitCode, b.reason = exited, t.ExitCode, t.Reason
		b.began, b.ended, b.id = t.StartedAt.Time, t.FinishedAt.Time, idOf(p.uid, s.Name, s.RestartCount)
		return b
	}
	id, live := k.find(p, obj, s)
	reported := s.State.Running
	if !live && reported == nil {
		return b
	}
	b.stage, b.id, b.began = running, id, time.Now() // killed between the start and the status
	if reported != nil {
		b.began = reported.StartedAt.Time
	}
	if !live { // it died with the machine's files
		b.stage, b.ended, b.exitCode, b.reason = exited, time.Now(), 137, "ContainerStatusUnknown"
	}
	return b
}

// start runs a container once. The error says why it does not run; nothing of it is left then.
func (k *kubelet) start(ctx context.Context, p *pod, obj *corev1.Pod, c *corev1.Container, b *box) error {
	agent := k.agent()
	if agent == nil {
		return errNoAgent
	}
	made := containerOf(sandboxOf(p, obj), c.Name, idOf(p.uid, c.Name, b.restarts))
	if err := k.create(ctx, agent, p, obj, c, &made); err != nil {
		k.discard(made)
		return err
	}
	k.gate.kubelet().Added(obj, c, made.ID)
	if _, err := k.n.tree.Spawn(made.Cgroup); err != nil {
		k.discard(made)
		return err
	}
	made.Running = true
	k.keep(made)
	b.stage, b.id, b.began = running, made.ID, time.Now()
	b.reason, b.detail, b.tries = "", "", 0
	return nil
}

// errNoAgent is returned while the node's agent does not run: then no container starts.
var errNoAgent = errors.New("AgentNotRunning")

// create makes the container's group, sets what the kubelet and the agent want, and asks for the start: the steps of a
// runtime that has the agent as its NRI plugin.
func (k *kubelet) create(ctx context.Context, agent *hook.Service, p *pod, obj *corev1.Pod, c *corev1.Container,
	made *hook.Container,
) error {
	if !p.sandboxed {
		if err := agent.RunPod(ctx, made.Pod); err != nil {
			return err
		}
		p.sandboxed = true
	}
	if err := k.makeGroups(obj, c, made); err != nil {
		return err
	}
	made.Has.CPUs, made.Has.Mems = k.gate.kubelet().Affinity(obj, c)
	answer, updates, err := agent.Create(ctx, *made)
	if err != nil {
		return err
	}
	for _, u := range updates {
		if other, ok := k.running(u.ContainerID); ok {
			_ = k.set(other.Cgroup, u.Resources) // its failure is only logged by a runtime: the start sees it
		}
	}
	made.Has.CPUs, made.Has.Mems = cmp.Or(answer.CPUs, made.Has.CPUs), cmp.Or(answer.Mems, made.Has.Mems)
	made.Has.Quota = answer.Quota
	if err := agent.Check(ctx, *made); err != nil {
		return err
	}
	if err := k.set(made.Cgroup, made.Has); err != nil {
		return err
	}
	return agent.Start(ctx, *made)
}

// set writes resources of a container into its group.
func (k *kubelet) set(group string, r hook.Resources) error {
	quota := ""
	if r.Quota != nil {
		quota = "max"
		if *r.Quota >= 0 {
			quota = strconv.FormatInt(*r.Quota, 10)
		}
	}
	for _, v := range [][2]string{{desired.Mems, r.Mems}, {desired.CPUs, r.CPUs}, {desired.QuotaV2, quota}} {
		if v[1] == "" {
			continue
		}
		if err := k.n.tree.Write(group, v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

// makeGroups makes the groups of pod and container with their CPU limits.
func (k *kubelet) makeGroups(obj *corev1.Pod, c *corev1.Container, made *hook.Container) error {
	_, err := k.n.tree.Read(made.Pod.Cgroup, desired.QuotaV2)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := k.n.tree.MkdirAll(made.Cgroup); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if fresh {
		if err := k.limit(made.Pod.Cgroup, obj.Spec.Containers...); err != nil {
			return err
		}
	}
	return k.limit(made.Cgroup, *c)
}

// limit gives a group the sum of the CPU limits of containers, in microseconds of CPU per period. There is none where a
// container has no limit.
func (k *kubelet) limit(group string, containers ...corev1.Container) error {
	milli := int64(0)
	for i := range containers {
		limit := containers[i].Resources.Limits.Cpu().MilliValue()
		if limit == 0 {
			return nil
		}
		milli += limit
	}
	return k.n.tree.Write(group, desired.QuotaV2, strconv.FormatInt(milli*100, 10)+" 100000")
}

// discard removes a container that never ran, or has ended.
func (k *kubelet) discard(c hook.Container) {
	_ = k.n.tree.Kill(c.Cgroup) // a group that is not there has nothing to kill
	k.mu.Lock()
	delete(k.boxes, c.ID)
	k.mu.Unlock()
	agent := k.agent()
	if agent != nil {
		agent.Stop(c)
	}
	k.gate.stopped(c.ID)
	k.removeGroup(c.Cgroup)
	if agent != nil {
		agent.Remove(c)
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
	k.discard(containerOf(sandboxOf(p, nil), name, b.id))
	b.stage, b.ended, b.exitCode, b.reason = exited, time.Now(), exitCode, reason
}

// tearDown ends all containers of a pod and removes its groups.
func (k *kubelet) tearDown(p *pod) {
	for name, b := range p.boxes {
		k.stop(p, name, b, 137, "Error")
	}
	if names, err := k.n.tree.Children(p.group); err == nil {
		for _, name := range names {
			k.discard(containerOf(sandboxOf(p, nil), "", name))
		}
		_ = k.n.tree.Rmdir(p.group)
	}
	if agent := k.agent(); agent != nil {
		agent.RemovePod(sandboxOf(p, nil))
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

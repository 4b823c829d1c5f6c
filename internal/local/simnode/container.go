package simnode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// container is the state of one container of a pod. Invariant: exactly one field of ContainerStatus.State is set.
type container struct {
	corev1.ContainerStatus
	next  time.Time // earliest time of the next attempt to start the container
	tries int       // starts that were refused since the container last ran
}

func (b *container) isRunning() bool { return b.State.Running != nil }

func (b *container) setWaiting(reason, text string) {
	b.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: text}}
	b.ContainerID = ""
}

func (b *container) setTerminated(exitCode int32, reason string) {
	b.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, StartedAt: b.State.Running.StartedAt, FinishedAt: metav1.Now(),
		ContainerID: b.ContainerID,
	}}
}

func (b *container) setRunning(id string) {
	b.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	b.ContainerID, b.tries = "tenon://"+id, 0
}

// idOf returns the id of a container's nth start. It depends on its arguments alone, so that a later process finds the
// container in the tree even if the earlier process was killed before it wrote a status.
func idOf(uid types.UID, name string, restarts int32) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", uid, name, restarts))
	return hex.EncodeToString(sum[:])
}

// sandboxOf returns a pod as a runtime reports it to the agent. obj is nil once the pod's object is deleted.
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

// adoptContainer records a container that an earlier process left running, and reports whether there is one.
func (k *kubelet) adoptContainer(p *pod, obj *corev1.Pod, s corev1.ContainerStatus) (id string, runs bool) {
	c := containerOf(sandboxOf(p, obj), s.Name, idOf(p.uid, s.Name, s.RestartCount))
	tasks, err := k.n.tree.Read(c.Cgroup, "cgroup.procs")
	if c.Running = err == nil && tasks != ""; c.Running {
		k.recordRunning(c)
	}
	return c.ID, c.Running
}

// recordRunning adds a container to those that have a process.
func (k *kubelet) recordRunning(c hook.Container) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.containers[c.ID] = c
}

func (k *kubelet) running(id string) (hook.Container, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, ok := k.containers[id]
	return c, ok
}

// adoptPod initializes what the kubelet knows of a pod from the pod's status and the tree.
func (k *kubelet) adoptPod(p *pod, obj *corev1.Pod) {
	p.adopted = true
	if p.ip = obj.Status.PodIP; !podutil.IsPodTerminal(obj) {
		k.assignAddress(p, p.ip)
	}
	for _, c := range obj.Status.Conditions {
		p.since[c.Type] = c
	}
	known := slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses)
	for _, c := range slices.Concat(obj.Spec.InitContainers, obj.Spec.Containers) {
		b := &container{ContainerStatus: podutil.GetExistingContainerStatus(known, c.Name)}
		b.Name, b.Image, b.ImageID = c.Name, c.Image, "tenon://"+c.Image
		p.containers[c.Name] = b
		if b.State.Terminated != nil {
			continue
		}
		switch id, live := k.adoptContainer(p, obj, b.ContainerStatus); {
		case live && !b.isRunning(): // the earlier process was killed between the start and the status
			b.setRunning(id)
		case !live && b.isRunning(): // the container was lost with the machine's files
			b.setTerminated(137, "ContainerStatusUnknown")
		case !live:
			b.setWaiting("ContainerCreating", "")
		}
	}
}

// start runs a container once. On an error the container does not run and its group is removed.
func (k *kubelet) start(ctx context.Context, p *pod, obj *corev1.Pod, c *corev1.Container, b *container) error {
	agent := k.agent()
	if agent == nil {
		return errNoAgent
	}
	made := containerOf(sandboxOf(p, obj), c.Name, idOf(p.uid, c.Name, b.RestartCount))
	err := k.create(ctx, agent, p, obj, c, &made)
	if err == nil {
		k.gate.kubelet().Added(obj, c, made.ID)
		_, err = k.n.tree.Spawn(made.Cgroup)
	}
	if err != nil {
		k.discard(made)
		return err
	}
	made.Running = true
	k.recordRunning(made)
	b.setRunning(made.ID)
	return nil
}

var errNoAgent = errors.New("AgentNotRunning")

// create makes the container's group, writes the resources that the kubelet and the agent determine, and asks the agent
// for the start: the steps of a runtime that has the agent as its NRI plugin.
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
	if err := k.inject(agent, made); err != nil {
		return err
	}
	made.Has.CPUs, made.Has.Mems = k.gate.kubelet().Affinity(obj, c)
	answer, updates, err := agent.Create(ctx, *made)
	if err != nil {
		return err
	}
	for _, u := range updates {
		if other, ok := k.running(u.ContainerID); ok {
			_ = k.set(other.Cgroup, u.Resources) // a runtime only logs a failure here; the agent's Start detects it
		}
	}
	made.Has.CPUs, made.Has.Mems = cmp.Or(answer.CPUs, made.Has.CPUs), cmp.Or(answer.Mems, made.Has.Mems)
	made.Has.Quota, made.Has.Weight, made.Has.Memory = answer.Quota, answer.Weight, answer.Memory
	if err := agent.Check(ctx, *made); err != nil {
		return err
	}
	if err := k.set(made.Cgroup, made.Has); err != nil {
		return err
	}
	return agent.Start(ctx, *made)
}

// inject adds the devices that the agent allocates to a container. A simulated container has no process that could see
// them, so inject also writes them to a file of the machine.
func (k *kubelet) inject(agent *hook.Service, made *hook.Container) error {
	answer, err := agent.Devices(*made)
	if err != nil || answer.IsEmpty() {
		return err
	}
	for name, value := range answer.Env {
		made.Devices.Env = append(made.Devices.Env, name+"="+value)
	}
	slices.Sort(made.Devices.Env)
	made.Devices.CDI = answer.CDI
	for _, f := range answer.Files {
		made.Devices.Files = append(made.Devices.Files, inject.File{DeviceFile: f, HostPath: f.Path})
	}
	if err := agent.CheckDevices(*made); err != nil {
		return err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	file := k.injected(made.ID)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// injected returns the path of the file with a container's devices.
func (k *kubelet) injected(id string) string {
	return filepath.Join(k.n.root.Dir, "containers", id+".json")
}

func (k *kubelet) set(group string, r hook.Resources) error {
	quota := ""
	if r.Quota != nil {
		quota = "max"
		if *r.Quota >= 0 {
			quota = strconv.FormatInt(*r.Quota, 10)
		}
	}
	positive := func(n int64) string {
		if n <= 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	for _, v := range [][2]string{
		{desired.Mems, r.Mems},
		{desired.CPUs, r.CPUs},
		{desired.QuotaV2, quota},
		{desired.WeightV2, positive(r.Weight)},
		{desired.MemoryV2, positive(r.Memory)},
	} {
		if v[1] == "" {
			continue
		}
		if err := k.n.tree.Write(group, v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}

func (k *kubelet) makeGroups(obj *corev1.Pod, c *corev1.Container, made *hook.Container) error {
	_, err := k.n.tree.Read(made.Pod.Cgroup, desired.QuotaV2)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err := k.n.tree.MkdirAll(made.Cgroup); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if fresh {
		if err := k.writeQuota(made.Pod.Cgroup, obj.Spec.Containers...); err != nil {
			return err
		}
	}
	return k.writeQuota(made.Cgroup, *c)
}

// writeQuota limits a group to the sum of the CPU limits of containers. It does nothing where a container has no limit.
func (k *kubelet) writeQuota(group string, containers ...corev1.Container) error {
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

// discard ends a container and removes all of it.
func (k *kubelet) discard(c hook.Container) {
	_ = os.Remove(k.injected(c.ID)) // most containers have no such file
	_ = k.n.tree.Kill(c.Cgroup)     // a group that does not exist has no tasks
	k.mu.Lock()
	delete(k.containers, c.ID)
	k.mu.Unlock()
	agent := k.agent()
	if agent != nil {
		agent.Stop(c)
	}
	if managers := k.gate.kubelet(); managers != nil {
		_ = managers.Removed(c.ID) // an unknown container needs no removal
	}
	k.removeGroup(c.Cgroup)
	if agent != nil {
		agent.Remove(c)
	}
}

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

func (k *kubelet) stop(p *pod, b *container, exitCode int32, reason string) {
	if b.isRunning() {
		k.discard(containerOf(sandboxOf(p, nil), b.Name, idOf(p.uid, b.Name, b.RestartCount)))
		b.setTerminated(exitCode, reason)
	}
}

// tearDown ends all containers of a pod, known ones and those that an earlier process left, and removes the pod's
// group.
func (k *kubelet) tearDown(p *pod) {
	for _, b := range p.containers {
		k.stop(p, b, 137, "Error")
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
	k.releaseAddress(p)
}

// removeOrphans ends the pods of the tree whose objects were deleted while no process ran.
func (k *kubelet) removeOrphans() {
	for _, dir := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"} {
		names, err := k.n.tree.Children(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if uid, isPod := strings.CutPrefix(name, "pod"); isPod && k.pod(types.UID(uid)) == nil {
				k.tearDown(&pod{uid: types.UID(uid), group: path.Join(dir, name)})
			}
		}
	}
}

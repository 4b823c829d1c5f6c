package simnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/apply"
)

const (
	// initRun is how long an init container runs, jobRun a container of a Job.
	initRun = 50 * time.Millisecond
	jobRun  = time.Second
	// firstCrash and lastCrash bound the pause before a restart; the first restart is at once.
	firstCrash = time.Second
	lastCrash  = 30 * time.Second
	// firstRefusal and lastRefusal bound the pause after a refused start.
	firstRefusal = 50 * time.Millisecond
	lastRefusal  = 2 * time.Second
)

// behavior is what a simulated container does once it runs.
type behavior struct {
	runFor   time.Duration // 0: until the pod is deleted
	exitCode int32         // of a container that ends by itself
}

// behaviorOf returns the behavior of a pod's containers: that of its annotation, else that of its kind of owner.
func behaviorOf(obj *corev1.Pod) (b behavior) {
	if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "Job" {
		b.runFor = jobRun
	}
	s, _, err := annotation.ParseSimulate(obj.Annotations[annotation.SimulateKey])
	if err != nil { // most pods have no annotation
		return b
	}
	if s.RunFor != nil {
		b.runFor = max(s.RunFor.Duration, time.Millisecond)
	}
	b.exitCode = s.ExitCode
	return b
}

// advance starts and ends the containers of a pod that are due, in the kubelet's order: init containers one after the
// other, of which sidecars continue to run, then all others. It returns after which time to call it again; 0 means that
// only an event can change anything.
func (k *kubelet) advance(ctx context.Context, p *pod, obj *corev1.Pod) time.Duration {
	t := &advance{k: k, ctx: ctx, p: p, obj: obj, now: time.Now(), behavior: behaviorOf(obj)}
	for i := range obj.Spec.InitContainers {
		c := &obj.Spec.InitContainers[i]
		proceed := t.runToEnd
		if podutil.IsRestartableInitContainer(c) {
			proceed = func(c *corev1.Container) bool { return t.keepRunning(c, behavior{}) }
		}
		if !proceed(c) {
			return t.wait
		}
	}
	for i := range obj.Spec.Containers {
		t.keepRunning(&obj.Spec.Containers[i], t.behavior)
	}
	if !finished(p, obj) {
		return t.wait
	}
	for i := range obj.Spec.InitContainers {
		k.stop(p, p.containers[obj.Spec.InitContainers[i].Name], 0, "Completed")
	}
	return 0
}

// finished reports whether all containers of a pod but its init containers have ended for good.
func finished(p *pod, obj *corev1.Pod) bool {
	return !slices.ContainsFunc(obj.Spec.Containers, func(c corev1.Container) bool {
		ended := p.containers[c.Name].State.Terminated
		return ended == nil || podutil.ContainerShouldRestart(c, obj.Spec, ended.ExitCode)
	})
}

// advance is one call of kubelet.advance.
type advance struct {
	k        *kubelet
	ctx      context.Context
	p        *pod
	obj      *corev1.Pod
	now      time.Time
	behavior behavior
	wait     time.Duration // until the next step that is due; 0: no step is
}

// wakeIn makes t.wait at most d.
func (t *advance) wakeIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if t.wait == 0 || d < t.wait {
		t.wait = d
	}
}

// keepRunning starts a container, ends it when it has run long enough, and restarts it as its policy says. It reports
// whether the container runs.
func (t *advance) keepRunning(c *corev1.Container, how behavior) bool {
	b := t.p.containers[c.Name]
	t.endExpired(b, how)
	if ended := b.State.Terminated; ended != nil && podutil.ContainerShouldRestart(*c, t.obj.Spec, ended.ExitCode) {
		b.LastTerminationState = b.State
		b.next = t.now
		if b.RestartCount > 0 {
			b.next = t.now.Add(min(firstCrash<<min(b.RestartCount-1, 10), lastCrash))
		}
		b.RestartCount++
		b.setWaiting("CrashLoopBackOff", "the simulated container ended and is about to be restarted")
	}
	if b.State.Waiting != nil {
		t.tryStart(c, b)
		t.endExpired(b, how)
	}
	return b.isRunning()
}

// runToEnd starts an init container and ends it after a moment. It reports whether the container has ended.
func (t *advance) runToEnd(c *corev1.Container) bool {
	b := t.p.containers[c.Name]
	if b.State.Waiting != nil {
		t.tryStart(c, b)
	}
	t.endExpired(b, behavior{runFor: initRun})
	return b.State.Terminated != nil
}

// tryStart starts a container unless the pause after a refused start has not passed. A refusal that may not end by
// itself soon causes an Event, once for each reason.
func (t *advance) tryStart(c *corev1.Container, b *container) {
	if t.now.Before(b.next) {
		t.wakeIn(b.next.Sub(t.now))
		return
	}
	err := t.k.start(t.ctx, t.p, t.obj, c, b)
	if err == nil {
		return
	}
	pause := min(firstRefusal<<min(b.tries, 10), lastRefusal)
	b.tries++
	b.next = t.now.Add(pause)
	reason := reasonOf(err)
	b.setWaiting(reason, err.Error())
	t.wakeIn(pause)
	// The agent starts, or has not yet received the pod from the API server.
	transient := errors.Is(err, apply.ErrUnknownPod) || errors.Is(err, apply.ErrNotReady) ||
		errors.Is(err, errNoAgent)
	if b.tries <= quietTries && transient || t.p.reported == reason {
		return
	}
	t.p.reported = reason
	t.k.warn(t.obj, reason, "Start", err.Error())
}

// quietTries is how often a start that is refused for a mostly transient reason is retried before the pod gets an
// Event.
const quietTries = 4

func reasonOf(err error) string {
	var blocked *apply.Blocked
	switch {
	case errors.Is(err, errNoAgent):
		return errNoAgent.Error()
	case errors.Is(err, apply.ErrNotReady):
		return "AgentNotReady"
	case errors.As(err, &blocked):
		return blocked.Cause.Error()
	}
	return "CreateContainerError"
}

// endExpired ends a container that has run for the time that its behavior has.
func (t *advance) endExpired(b *container, how behavior) {
	if !b.isRunning() || how.runFor == 0 {
		return
	}
	reason := "Completed"
	if how.exitCode != 0 {
		reason = "Error"
	}
	if left := how.runFor - t.now.Sub(b.State.Running.StartedAt.Time); left > 0 {
		t.wakeIn(left)
	} else {
		t.k.stop(t.p, b, how.exitCode, reason)
	}
}

func (k *kubelet) warn(obj *corev1.Pod, reason, action, text string) {
	k.n.events.Eventf(obj, nil, corev1.EventTypeWarning, reason, action, "%s", text)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the pod was deleted, and another one may have its name
	}
	return err
}

// report writes the pod's status when it differs from the last written one. Conditions of other writers are kept: a
// strategic merge joins them by type.
func (k *kubelet) report(ctx context.Context, p *pod, obj *corev1.Pod) error {
	status := k.statusOf(p, obj)
	if p.sent != nil && equality.Semantic.DeepEqual(*p.sent, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.uid}, "status": status})
	if err != nil {
		return err
	}
	_, err = k.n.Client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err := ignoreGone(err); err != nil {
		return fmt.Errorf("patch status of pod %s: %w", p.ref, err)
	}
	p.sent = &status
	if managers := k.gate.kubelet(); managers != nil {
		managers.Observe(p.uid, status.DeepCopy())
	}
	return nil
}

func (k *kubelet) statusOf(p *pod, obj *corev1.Pod) corev1.PodStatus {
	s := corev1.PodStatus{
		Phase: corev1.PodPending, QOSClass: obj.Status.QOSClass, HostIP: nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}},
		StartTime: obj.Status.StartTime,
	}
	if s.StartTime == nil && p.sent != nil {
		s.StartTime = p.sent.StartTime
	}
	if s.StartTime == nil {
		s.StartTime = new(second(time.Now()))
	}
	if r := p.refusal; r != nil {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, r.Reason, r.Message
		return s
	}
	ip := p.ip
	if obj.Spec.HostNetwork {
		ip = nodeIP
	}
	s.PodIP, s.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	initialized, ready, ran := true, true, false
	for i := range obj.Spec.InitContainers {
		c := &obj.Spec.InitContainers[i]
		b := p.containers[c.Name]
		sidecar := b.isRunning() && podutil.IsRestartableInitContainer(c)
		done := b.State.Terminated != nil && b.State.Terminated.ExitCode == 0 || sidecar
		initialized, ran = initialized && done, ran || sidecar
		s.InitContainerStatuses = append(s.InitContainerStatuses, b.status(done))
	}
	for i := range obj.Spec.Containers {
		b := p.containers[obj.Spec.Containers[i].Name]
		ready = ready && b.isRunning()
		ran = ran || b.State.Waiting == nil || b.RestartCount > 0
		s.ContainerStatuses = append(s.ContainerStatuses, b.status(b.isRunning()))
	}
	switch {
	case finished(p, obj):
		s.Phase = corev1.PodSucceeded
		for i := range obj.Spec.Containers {
			if p.containers[obj.Spec.Containers[i].Name].State.Terminated.ExitCode != 0 {
				s.Phase = corev1.PodFailed
			}
		}
	case obj.DeletionTimestamp != nil:
		s.Phase = corev1.PodFailed
	case ran && initialized:
		s.Phase = corev1.PodRunning
	}
	why := "ContainersNotReady"
	if s.Phase == corev1.PodSucceeded {
		why = "PodCompleted"
	}
	p.setCondition(&s, corev1.PodReadyToStartContainers, !podutil.IsPodPhaseTerminal(s.Phase), "ContainersNotReady")
	p.setCondition(&s, corev1.PodInitialized, initialized, "ContainersNotReady")
	p.setCondition(&s, corev1.ContainersReady, ready, why)
	if ready && !gatesOpen(obj) {
		ready, why = false, status.ReadinessGatesNotReady
	}
	p.setCondition(&s, corev1.PodReady, ready, why)
	return s
}

// gatesOpen reports whether other writers have set the conditions of all readiness gates of a pod to True.
func gatesOpen(obj *corev1.Pod) bool {
	return !slices.ContainsFunc(obj.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		_, c := podutil.GetPodCondition(&obj.Status, g.ConditionType)
		return c == nil || c.Status != corev1.ConditionTrue
	})
}

// setCondition adds a condition with the time of its last change; why is the reason of a condition that is false.
func (p *pod) setCondition(s *corev1.PodStatus, kind corev1.PodConditionType, holds bool, why string) {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: second(time.Now())}
	if !holds {
		c.Status, c.Reason = corev1.ConditionFalse, why
	}
	if old, ok := p.since[kind]; ok && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	p.since[kind] = c
	s.Conditions = append(s.Conditions, c)
}

func (b *container) status(ready bool) corev1.ContainerStatus {
	s := b.ContainerStatus
	s.Ready, s.Started = ready, new(b.isRunning())
	return s
}

// second returns a time with the precision of the API.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

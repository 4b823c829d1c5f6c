package simnode

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

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

type play struct {
	runFor   time.Duration // 0 = until the pod is deleted
	exitCode int32
}

func playOf(obj *corev1.Pod) (p play) {
	if owner := metav1.GetControllerOf(obj); owner != nil && owner.Kind == "Job" {
		p.runFor = jobRun
	}
	s, _, err := annotation.ParseSimulate(obj.Annotations[annotation.SimulateKey])
	if err != nil { // most pods have none
		return p
	}
	if s.RunFor != nil {
		p.runFor = max(s.RunFor.Duration, time.Millisecond)
	}
	p.exitCode = s.ExitCode
	return p
}

// advance starts and ends containers as far as the moment allows, in the kubelet's order: init containers one after the
// other, sidecars among them staying, then all others. It returns when to look again.
func (k *kubelet) advance(ctx context.Context, p *pod, obj *corev1.Pod) time.Duration {
	t := &turn{k: k, ctx: ctx, p: p, obj: obj, now: time.Now(), play: playOf(obj)}
	for i := range obj.Spec.InitContainers {
		c := &obj.Spec.InitContainers[i]
		proceed := t.complete
		if podutil.IsRestartableInitContainer(c) {
			proceed = func(c *corev1.Container) bool { return t.keep(c, play{}) }
		}
		if !proceed(c) {
			return t.wait
		}
	}
	for i := range obj.Spec.Containers {
		t.keep(&obj.Spec.Containers[i], t.play)
	}
	if !finished(p, obj) {
		return t.wait
	}
	for i := range obj.Spec.InitContainers {
		k.stop(p, p.boxes[obj.Spec.InitContainers[i].Name], 0, "Completed")
	}
	return 0
}

func finished(p *pod, obj *corev1.Pod) bool {
	return !slices.ContainsFunc(obj.Spec.Containers, func(c corev1.Container) bool {
		ended := p.boxes[c.Name].State.Terminated
		return ended == nil || podutil.ContainerShouldRestart(c, obj.Spec, ended.ExitCode)
	})
}

type turn struct {
	k    *kubelet
	ctx  context.Context
	p    *pod
	obj  *corev1.Pod
	now  time.Time
	play play
	wait time.Duration // until the next thing to do; 0 = nothing
}

func (t *turn) lookIn(d time.Duration) {
	d = max(d, time.Millisecond)
	if t.wait == 0 || d < t.wait {
		t.wait = d
	}
}

// keep starts a container, ends it when it has run long enough, and restarts it as its policy says. It reports whether
// the container runs.
func (t *turn) keep(c *corev1.Container, how play) bool {
	b := t.p.boxes[c.Name]
	t.expire(b, how)
	if ended := b.State.Terminated; ended != nil && podutil.ContainerShouldRestart(*c, t.obj.Spec, ended.ExitCode) {
		b.LastTerminationState = b.State
		b.next = t.now
		if b.RestartCount > 0 {
			b.next = t.now.Add(min(firstCrash<<min(b.RestartCount-1, 10), lastCrash))
		}
		b.RestartCount++
		b.waits("CrashLoopBackOff", "the simulated container ended and is about to be restarted")
	}
	if b.State.Waiting != nil {
		t.try(c, b)
		t.expire(b, how)
	}
	return b.runs()
}

func (t *turn) complete(c *corev1.Container) bool {
	b := t.p.boxes[c.Name]
	if b.State.Waiting != nil {
		t.try(c, b)
	}
	t.expire(b, play{runFor: initRun})
	return b.State.Terminated != nil
}

func (t *turn) try(c *corev1.Container, b *box) {
	if t.now.Before(b.next) {
		t.lookIn(b.next.Sub(t.now))
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
	b.waits(reason, err.Error())
	t.lookIn(pause)
	// the agent just needs a moment: it starts, or has not heard of the pod yet
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

func (t *turn) expire(b *box, how play) {
	if !b.runs() || how.runFor == 0 {
		return
	}
	reason := "Completed"
	if how.exitCode != 0 {
		reason = "Error"
	}
	if left := how.runFor - t.now.Sub(b.State.Running.StartedAt.Time); left > 0 {
		t.lookIn(left)
	} else {
		t.k.stop(t.p, b, how.exitCode, reason)
	}
}

func (k *kubelet) warn(obj *corev1.Pod, reason, action, text string) {
	k.n.events.Eventf(obj, nil, corev1.EventTypeWarning, reason, action, "%s", text)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod has its name by now
	}
	return err
}

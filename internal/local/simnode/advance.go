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

// play is how the containers of a pod behave.
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
		name := obj.Spec.InitContainers[i].Name
		k.stop(p, name, p.boxes[name], 0, "Completed")
	}
	return 0
}

// finished reports whether every main container has ended for good.
func finished(p *pod, obj *corev1.Pod) bool {
	return !slices.ContainsFunc(obj.Spec.Containers, func(c corev1.Container) bool {
		b := p.boxes[c.Name]
		return b.stage != exited || podutil.ContainerShouldRestart(c, obj.Spec, b.exitCode)
	})
}

// turn is one advance of one pod.
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
	t.expire(c, b, how)
	if b.stage == exited && podutil.ContainerShouldRestart(*c, t.obj.Spec, b.exitCode) {
		b.last = b.terminated()
		b.stage, b.id = waiting, ""
		b.next = t.now.Add(crashPause(b.restarts))
		b.restarts++
		b.reason, b.detail = "CrashLoopBackOff", "the simulated container ended and is about to be restarted"
	}
	if b.stage == waiting {
		t.try(c, b)
		if b.stage == running && how.runFor > 0 {
			t.lookIn(b.began.Add(how.runFor).Sub(t.now))
		}
	}
	return b.stage == running
}

// complete runs an init container to its end and reports whether it is done.
func (t *turn) complete(c *corev1.Container) bool {
	b := t.p.boxes[c.Name]
	if b.stage == waiting {
		t.try(c, b)
	}
	t.expire(c, b, play{runFor: initRun})
	return b.stage == exited
}

// try starts a waiting container when its time has come.
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
	b.reason, b.detail = reasonOf(err), err.Error()
	t.lookIn(pause)
	if b.tries <= quietTries && transient(err) || t.p.reported == b.reason {
		return
	}
	t.p.reported = b.reason
	t.k.warn(t.obj, b.reason, "Start", b.detail)
}

// quietTries is how often a start that is refused for a mostly transient reason is retried before the pod gets an
// Event.
const quietTries = 4

// transient reports whether the agent just needs a moment: it starts, or has not heard of the pod yet.
func transient(err error) bool {
	return errors.Is(err, apply.ErrUnknownPod) || errors.Is(err, apply.ErrNotReady) || errors.Is(err, errNoAgent)
}

// reasonOf returns the reason of an Event and of a waiting container.
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

// expire ends a container that has run for its time.
func (t *turn) expire(c *corev1.Container, b *box, how play) {
	left := how.runFor - t.now.Sub(b.began)
	switch {
	case b.stage != running || how.runFor == 0:
	case left > 0:
		t.lookIn(left)
	case how.exitCode != 0:
		t.k.stop(t.p, c.Name, b, how.exitCode, "Error")
	default:
		t.k.stop(t.p, c.Name, b, 0, "Completed")
	}
}

// crashPause is the pause before the restart after n earlier ones.
func crashPause(n int32) time.Duration {
	if n == 0 {
		return 0
	}
	return min(firstCrash<<min(n-1, 10), lastCrash)
}

// warn sends an Event about a pod.
func (k *kubelet) warn(obj *corev1.Pod, reason, action, text string) {
	k.n.events.Eventf(obj, nil, corev1.EventTypeWarning, reason, action, "%s", text)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod has its name by now
	}
	return err
}

package preempt

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	upstream "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// Preemptor is what victims are evicted for: a pod, or pods that start together.
type Preemptor = upstream.ExecutorPreemptor

// Eviction is one victim that is to be evicted.
type Eviction struct {
	Victim *corev1.Pod
	// By is the preemptor, and Node the one to which it is nominated.
	By   Preemptor
	Node string
	// Plugin is the name of the plugin that preempts.
	Plugin string
}

// Evictor evicts victims. Any goroutine may call it.
type Evictor interface {
	// Evict evicts one victim, and reports whether that was rejected in memory: a pod that is not bound yet is not
	// deleted, so that no event of its deletion wakes the preemptor. It returns no error for a victim that is gone.
	Evict(ctx context.Context, e Eviction) (rejected bool, err error)
}

// EvictBy adds a layer around what evicts victims so far.
func (c *Chooser) EvictBy(layer func(inner Evictor) Evictor) {
	outer := layer(executor(c.plugin.Executor.PreemptPod))
	c.plugin.Executor.PreemptPod = func(ctx context.Context, on upstream.Candidate,
		preemptor upstream.ExecutorPreemptor,
		victim *corev1.Pod, plugin string,
	) (bool, error) {
		return outer.Evict(ctx, Eviction{Victim: victim, By: preemptor, Node: on.Name(), Plugin: plugin})
	}
}

// Evict evicts one victim.
func (c *Chooser) Evict(ctx context.Context, e Eviction) (rejected bool, err error) {
	return executor(c.plugin.Executor.PreemptPod).Evict(ctx, e)
}

// Count counts one preemption with so many victims in kube-scheduler's metrics. kube-scheduler counts its own.
func Count(victims int) {
	metrics.PreemptionAttempts.Inc()
	metrics.PreemptionVictims.Observe(float64(victims))
}

// executor is what evicts victims for kube-scheduler, as an Evictor.
type executor func(context.Context, upstream.Candidate, upstream.ExecutorPreemptor, *corev1.Pod, string,
) (bool, error)

// Evict evicts one victim.
func (evict executor) Evict(ctx context.Context, e Eviction) (rejected bool, err error) {
	return evict(ctx, candidate{e}, e.By, e.Victim, e.Plugin)
}

// candidate is an eviction as one of kube-scheduler's candidates.
type candidate struct{ eviction Eviction }

// Victims returns the victim.
func (c candidate) Victims() *extenderv1.Victims {
	return &extenderv1.Victims{Pods: []*corev1.Pod{c.eviction.Victim}}
}

// Name returns the node.
func (c candidate) Name() string { return c.eviction.Node }

// NumPodGroupDisruptions is zero: the pods of kube-scheduler's own groups are not evicted together.
func (candidate) NumPodGroupDisruptions() int { return 0 }

package coscheduling

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/core/why"
)

// evict evicts victims for the members of a failed plan, which is tried again afterwards. It stops where the gang is no
// longer to start.
func (r *Rounds) evict(ctx context.Context, is *round, victims []*unit) {
	member := is.queued[is.failure.UID].Pod
	f := r.Core.Profiles[member.Spec.SchedulerName]
	chooser := r.Preemption(f)
	var pods []*corev1.Pod
	for _, u := range victims {
		for _, info := range u.pods {
			if pod := info.GetPod(); pod.DeletionTimestamp == nil {
				pods = append(pods, pod)
			}
		}
	}
	metrics.PreemptionAttempts.Inc()
	metrics.PreemptionVictims.Observe(float64(len(pods)))
	begin := func(ctx context.Context) {
		f.Parallelizer().Until(ctx, len(pods), func(i int) {
			if r.Gangs.Gate(member).Code == why.None {
				by := preemptor{member, types.UID(r.Gangs.GangOf(member))}
				// an error is logged, and seen when the gang is tried again
				_ = chooser.Executor.PreemptPod(ctx, victim{pods[i]}, by, pods[i], Name)
			}
		}, Name)
		r.mu.Lock()
		for uid := range is.nominated {
			delete(r.evicting, uid)
		}
		r.mu.Unlock()
		r.Core.SchedulingQueue.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{
			member.Namespace + "/" + member.Name: member,
		})
	}
	r.mu.Lock()
	if r.evicting == nil {
		r.evicting = map[string]string{}
	}
	maps.Copy(r.evicting, is.nominated)
	r.mu.Unlock()
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerAsyncPreemption) {
		go begin(context.WithoutCancel(ctx))
		return
	}
	begin(ctx)
}

// victim is a pod as one of upstream's candidates.
type victim struct{ pod *corev1.Pod }

// Victims returns the pod.
func (v victim) Victims() *extenderv1.Victims { return &extenderv1.Victims{Pods: []*corev1.Pod{v.pod}} }

// Name returns its node.
func (v victim) Name() string { return v.pod.Spec.NodeName }

// preemptor is a gang as upstream's events name it, by one of its members.
type preemptor struct {
	*corev1.Pod
	gang types.UID
}

// UID returns the name of the gang.
func (p preemptor) UID() types.UID { return p.gang }

// SchedulerName returns that of the member.
func (p preemptor) SchedulerName() string { return p.Spec.SchedulerName }

// Obj returns the member.
func (p preemptor) Obj() runtime.Object { return p.Pod }

// Pods returns the member.
func (p preemptor) Pods() map[string]*corev1.Pod { return map[string]*corev1.Pod{p.Name: p.Pod} }

// Priority returns that of the member.
func (p preemptor) Priority() int32 { return corev1helpers.PodPriority(p.Pod) }

// Type returns what UID is of.
func (preemptor) Type() string { return "gang" }

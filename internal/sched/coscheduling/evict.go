package coscheduling

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/sched/upstream/preempt"
	"github.com/tenon-project/tenon/internal/sched/upstream/schedpod"
)

// evictVictims evicts victims for the members of a failed plan, which are nominated to these nodes and tried again
// afterwards. member is the one for which the plan failed. It stops where the gang is no longer to start.
func (ev *Evictions) evictVictims(ctx context.Context, member *corev1.Pod, nominated map[string]string,
	victims []*unit,
) {
	f, gangs := ev.cluster.Core.Profile(member.Spec.SchedulerName), ev.cluster.Gangs
	chooser := ev.cluster.Plugins.Preemption(f)
	var pods []*corev1.Pod
	for _, u := range victims {
		for _, info := range u.pods {
			pods = append(pods, info.GetPod())
		}
	}
	preempt.Count(len(pods))
	deleted := make(chan *corev1.Pod, len(pods))
	begin := func(ctx context.Context) {
		f.Parallelizer().Until(ctx, len(pods), func(i int) {
			// The gang may have lost a member since the plan.
			gate := kube.Ask(gangs, func(s *gang.State) gang.Refusal { return s.Gate(string(member.UID)) })
			if gate.Code == why.None {
				evictor := preemptor{member, types.UID(gangs.GangOf(member)), gangs.Priority(member), deleted}
				// an error is logged, and seen when the gang is tried again
				_, _ = chooser.Evict(ctx, preempt.Eviction{
					Victim: pods[i], By: evictor, Node: pods[i].Spec.NodeName, Plugin: Name,
				})
			}
		}, Name)
		close(deleted)
		var evicted []*corev1.Pod
		for pod := range deleted {
			evicted = append(evicted, pod)
		}
		// The members become eligible to preempt again only when the informer has seen all deletions.
		untilAllGo(ctx, f, evicted)
		ev.mu.Lock()
		for uid := range nominated {
			delete(ev.evicting, uid)
		}
		ev.mu.Unlock()
		ev.cluster.Core.Queue().Activate(klog.FromContext(ctx), map[string]*corev1.Pod{
			member.Namespace + "/" + member.Name: member,
		})
	}
	ev.mu.Lock()
	maps.Copy(ev.evicting, nominated)
	ev.mu.Unlock()
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerAsyncPreemption) {
		go begin(context.WithoutCancel(ctx))
		return
	}
	begin(ctx)
}

// Evictor returns what evicts victims for a profile, in the place of upstream's, which deletes a pod by its name.
func (ev *Evictions) Evictor(h fwk.Handle) preempt.Evictor { return evictor{ev.cluster.Gangs, h} }

// evictor evicts victims for the pods of a profile.
type evictor struct {
	gangs  *kube.Gangs
	handle fwk.Handle // of the profile
}

// Evict evicts one victim. A pod that is not bound yet goes back to the queue. Another one gets the condition
// DisruptionTarget and is deleted, unless it is gone and a namesake is there by now.
func (ev evictor) Evict(ctx context.Context, e preempt.Eviction) (rejected bool, err error) {
	logger, h, pod := klog.FromContext(ctx), ev.handle, e.Victim
	who := fmt.Sprintf("%s %s", e.By.Type(), klog.KObj(e.By))
	p, together := e.By.(preemptor)
	if together {
		who = fmt.Sprintf("gang %s", p.gang)
	}
	text := fmt.Sprintf("Preempted by %s on node %s", who, e.Node)
	if rejected = returns(h, pod, e.Plugin); rejected {
		text += " (in kube-scheduler memory)."
	} else if err := remove(ctx, h.ClientSet(), e.By, pod); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	} else if err != nil {
		logger.Error(err, "Victim not evicted", "victim", klog.KObj(pod), "preemptor", klog.KObj(e.By))
		return false, err
	} else if together {
		p.deleted <- pod // all are waited for at once
	} else {
		untilAllGo(ctx, h, []*corev1.Pod{pod})
	}
	recorder, preempted := h.EventRecorder().WithLogger(logger), event.Preempted
	related := e.By.Obj() // of a pod it is a type of upstream, which an Event cannot refer to
	if pods := slices.Collect(maps.Values(e.By.Pods())); len(pods) == 1 {
		related = pods[0]
	}
	recorder.Eventf(pod, related, preempted.Type(), preempted.String(), "Preempting", "%s", text)
	if gangUID := ev.gangs.GangOf(pod); gangUID != "" {
		var about runtime.Object = pod
		if g := ev.gangs.Object(gangUID); g != nil {
			about = g
		}
		preempted = event.GangPreempted
		recorder.Eventf(about, related, preempted.Type(), preempted.String(), "Preempting",
			"pod %s of gang %s is evicted for %s, of priority %d", klog.KObj(pod), gangUID, who, e.By.Priority())
	}
	return rejected, nil
}

// returns sends a pod that is not bound yet back to the queue, and reports whether it goes.
func returns(h fwk.Handle, pod *corev1.Pod, plugin string) bool {
	if w := h.GetWaitingPod(pod.UID); w != nil {
		return w.Preempt(plugin, "preempted")
	}
	binding := h.GetPodInPreBind(pod.UID)
	return binding != nil && binding.CancelPod("preempted by "+plugin)
}

// remove gives a victim the condition DisruptionTarget and deletes it, both for this very pod and no namesake: a pod
// that is gone, or replaced, is an error that the caller takes for success.
func remove(ctx context.Context, client clientset.Interface, evictor preempt.Preemptor, pod *corev1.Pod,
) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
			Message: fmt.Sprintf(
				"%s: preempting to accommodate a higher priority %s",
				evictor.SchedulerName(),
				evictor.Type(),
			),
			ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(&pod.Status, pod.Generation,
				corev1.DisruptionTarget),
			LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		return err
	}
	pods := client.CoreV1().Pods(pod.Namespace)
	err = retry.OnError(retry.DefaultBackoff, schedpod.Retriable, func() error {
		_, err := pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil {
		return err
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

// goesLimit is how long an informer may be behind a deletion: where its watch is broken it learns of it later.
const goesLimit = 5 * time.Second

// untilAllGo waits until the informer of pods says that deleted pods go. A preemptor that is tried before that, and
// whose first victim is gone, finds that the last one keeps its room, and takes another.
func untilAllGo(ctx context.Context, h fwk.Handle, deleted []*corev1.Pod) {
	known := h.SharedInformerFactory().Core().V1().Pods().Lister()
	_ = wait.PollUntilContextTimeout(ctx, 2*time.Millisecond, goesLimit, true, func(context.Context) (bool, error) {
		deleted = slices.DeleteFunc(deleted, func(pod *corev1.Pod) bool {
			now, err := known.Pods(pod.Namespace).Get(pod.Name)
			return apierrors.IsNotFound(err) || err == nil && (now.UID != pod.UID || now.DeletionTimestamp != nil)
		})
		return len(deleted) == 0, nil
	})
}

// preemptor is a gang as upstream's events name it, by one of its members.
type preemptor struct {
	*corev1.Pod           // the member for which the plan failed
	gang        types.UID // namespace/name of its gang, which Events show
	priority    int32     // of the gang: the lowest of its members
	// deleted gets each victim that is deleted, so that the preemptor waits for all of them at once. It has room for
	// all.
	deleted chan<- *corev1.Pod
}

// UID returns the name of the gang.
func (p preemptor) UID() types.UID { return p.gang }

// SchedulerName returns that of the member.
func (p preemptor) SchedulerName() string { return p.Spec.SchedulerName }

// Obj returns the member.
func (p preemptor) Obj() runtime.Object { return p.Pod }

// Pods returns the member.
func (p preemptor) Pods() map[string]*corev1.Pod { return map[string]*corev1.Pod{p.Name: p.Pod} }

// Priority returns that of the gang.
func (p preemptor) Priority() int32 { return p.priority }

// Type returns what UID is of.
func (preemptor) Type() string { return "gang" }

package ranking

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"
)

// rejectionsKept bounds the pods whose rejections are remembered.
const rejectionsKept = 1000

// Rejections remembers to which nodes the API server refused to bind a pod, and why: an admission webhook may forbid a
// node for reasons of its own, and the node that was best is best again. All methods may be called from any goroutine.
type Rejections struct {
	mu   sync.Mutex // guards what the maps of pods are replaced by
	pods *lru.Cache // UID → map[string]string, from node to cause, never changed
}

// NewRejections returns a memory of none.
func NewRejections() *Rejections { return &Rejections{pods: lru.New(rejectionsKept)} }

// note remembers how a Binding ended.
func (r *Rejections) note(pod types.UID, node string, status *fwk.Status) {
	var refused apierrors.APIStatus
	if status.IsSuccess() {
		r.pods.Remove(pod)
		return
	} else if !errors.As(status.AsError(), &refused) {
		return
	}
	switch refused.Status().Code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity:
		r.mu.Lock()
		defer r.mu.Unlock()
		nodes := maps.Clone(r.reasons(pod))
		if nodes == nil {
			nodes = map[string]string{}
		}
		nodes[node] = refused.Status().Message
		r.pods.Add(pod, nodes)
	}
}

// reasons returns the nodes to which a pod was refused to be bound, with the causes. The map must not be changed.
func (r *Rejections) reasons(pod types.UID) map[string]string {
	if r == nil {
		return nil
	}
	known, _ := r.pods.Get(pod)
	nodes, _ := known.(map[string]string)
	return nodes
}

// rejections are those of a pod, by node.
type rejections struct {
	pod types.UID
	// causes are the API server's messages.
	causes map[string]string
}

// refuses refuses a node to which the pod was refused to be bound.
func (p *Profile) refuses(pod types.UID, node string) *fwk.Status {
	refusing := p.refusing.Load()
	if refusing == nil || refusing.pod != pod {
		return nil
	}
	if cause, refused := refusing.causes[node]; refused {
		return fwk.NewStatus(fwk.Unschedulable, "the API server refused to bind the pod to the node: "+cause)
	}
	return nil
}

// Schedule tries the nodes to which a pod was refused to be bound after all others, and again from the first.
func (r *Rejections) Schedule(schedule schedulePod) schedulePod {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		result, err := schedule(ctx, f, state, pod)
		var fit *framework.FitError
		if len(r.reasons(pod.Pod.UID)) == 0 || !errors.As(err, &fit) {
			return result, err
		}
		r.pods.Remove(pod.Pod.UID)
		return schedule(ctx, f, state, pod)
	}
}

// schedulePod is the step of the cycle that chooses a node.
type schedulePod = func(context.Context, framework.Framework, fwk.CycleState,
	*framework.QueuedPodInfo) (scheduler.ScheduleResult, error)

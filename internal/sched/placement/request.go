package placement

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// requestsKept bounds the memory of parsed pods; it is far above any queue that one attempt per pod and event can
// serve.
const requestsKept = 1 << 14

// requests remembers pods that concern us: signing, filtering and every queueing hint of a pod share one parse.
type requests struct {
	mu    sync.Mutex
	byUID map[types.UID]parsed
}

type parsed struct {
	version string
	request *place.Request
}

// request parses the pod, or returns why it cannot be scheduled as it is written. The request must not be changed.
func (d *decision) request(pod *corev1.Pod) (*place.Request, *refusal) {
	if r := d.requests.get(pod); r != nil {
		return r, nil
	}
	r, reason, detail := convert.Request(pod, d.args())
	if !reason.OK() {
		return nil, &refusal{Reason: reason, detail: detail}
	}
	if r.Concerns() {
		r.Seal()
		d.requests.put(pod, r)
	}
	return r, nil
}

func (q *requests) get(pod *corev1.Pod) *place.Request {
	q.mu.Lock()
	defer q.mu.Unlock()
	if known, ok := q.byUID[pod.UID]; ok && pod.UID != "" && known.version == pod.ResourceVersion {
		return known.request
	}
	return nil
}

func (q *requests) put(pod *corev1.Pod, r *place.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byUID == nil || len(q.byUID) >= requestsKept {
		q.byUID = map[types.UID]parsed{}
	}
	q.byUID[pod.UID] = parsed{pod.ResourceVersion, r}
}

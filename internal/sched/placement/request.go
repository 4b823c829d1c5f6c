package placement

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// requestsKept bounds the parsed pods; it is far above any queue that can be served.
const requestsKept = 1 << 14

// parsed is a request with all that it was computed from. It is valid while the pod has this version, and kinds of
// devices and templates are these very ones.
type parsed struct {
	// version is the resource version of the pod.
	version string
	// kinds are the kinds of devices that Device objects list. They are compared by identity: a change makes new ones.
	kinds *device.Kinds
	// parts are the templates of GPU shares. They are compared by identity too.
	parts *[]device.Template
	// request is what the pod asks for. It is shared by all cycles of the pod, and never changed.
	request *place.Request
}

// request parses the pod, or returns why it cannot be scheduled as it is written. The request must not be changed.
func (d *decision) request(pod *corev1.Pod) (*place.Request, *Refusal) {
	args := d.args()
	args.Kinds = d.store.Kinds().Load()
	var parts *[]device.Template
	if d.sharing.Templates != nil {
		parts = d.sharing.Templates()
	}
	if kept, ok := d.requests.Get(pod.UID); ok && pod.UID != "" {
		if p := kept.(parsed); p.version == pod.ResourceVersion && p.kinds == args.Kinds && p.parts == parts {
			return p.request, nil
		}
	}
	r, reason, detail := convert.Request(pod, args)
	if !reason.OK() {
		return nil, &Refusal{Reason: reason, Detail: detail}
	}
	for _, request := range [...]*place.Request{r, r.OnPolicyNodes} {
		if request != nil && request.Devices != nil {
			request.Options.WholeOnly, request.DevicesApart = d.sharing.WholeOnly, d.sharing.Apart
			if parts != nil {
				request.Options.Templates = *parts
			}
		}
	}
	if r.Concerns() {
		r.Seal()
		d.requests.Add(pod.UID, parsed{pod.ResourceVersion, args.Kinds, parts, r})
	}
	return r, nil
}

// Devices returns what the pod asks of devices; nil for nothing, and for a pod that cannot be read.
func (d *decision) Devices(pod *corev1.Pod) *device.Request {
	r, refused := d.request(pod)
	if refused != nil {
		return nil
	}
	return r.Devices
}

package placement

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Refusal is a why.Reason as an error: errors.As on a framework's status finds it again with its numbers.
type Refusal struct {
	why.Reason
	// Detail says what exactly is wrong, for codes that concern the pod and not a node.
	Detail string
	// never is true if no pod that ends can help on this node, although the code in general is resolvable.
	never bool
}

// Error returns the text without numbers: the framework counts nodes by it.
func (r *Refusal) Error() string {
	text := r.Text()
	if r.Detail != "" {
		return text + ": " + r.Detail
	}
	return text
}

// Finding returns the reason; the reader adds phase and node, and the plugin where the reason is not about devices: the
// decision answers for those under its other name.
func (r *Refusal) Finding() why.Finding {
	f := why.Finding{Reason: r.Reason, Detail: r.Detail}
	if f.Code.Entry().Plugin == DeviceShare {
		f.Plugin = DeviceShare
	}
	return f
}

// Status wraps the refusal. Preemption looks only at nodes whose refusal waiting or eviction can resolve.
func (r *Refusal) Status() *fwk.Status {
	code := fwk.UnschedulableAndUnresolvable
	if r.Code.Resolvable() && !r.never {
		code = fwk.Unschedulable
	}
	return fwk.NewStatus(code).WithError(r)
}

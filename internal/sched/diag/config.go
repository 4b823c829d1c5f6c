package diag

import (
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/view"
)

// Evaluator runs all filters for a pod on every node of one snapshot.
type Evaluator interface {
	Evaluate(ctx context.Context, pod *corev1.Pod) (view.Verdict, error)
}

// Config is what the handlers read. Every function must be safe for concurrent use and must not wait for a scheduling
// cycle. Fields without a mark are required.
type Config struct {
	// Leading reports whether this instance is the leader. Optional: nil means always.
	Leading func() bool
	// Ready returns why nothing can be answered yet, nil when all is known. Optional.
	Ready func() error
	// View returns a node's account, nil when the node is not known.
	View func(node string) *ledger.View
	// NodeInfo returns a private copy of the scheduler's view of a node.
	NodeInfo func(node string) (fwk.NodeInfo, bool)
	// Pod returns a pod as the informers have it, nil when there is none. Of pods that have ended it knows those that
	// their kubelet rejected.
	Pod func(namespace, name string) *corev1.Pod
	// Evaluator answers for pods that hold no node.
	Evaluator Evaluator
	// Queue returns the state of a pod in the scheduling queue. Optional, and it may return nil.
	Queue func(pod *corev1.Pod) *view.Queue
	// Ages returns the age of each source of data about a node. Optional.
	Ages func(node string) map[string]time.Duration

	// Mispredictions returns the last pods that were predicted wrong, the latest first. Optional.
	Mispredictions func() []Misprediction
	// LeftAlone returns how much longer the node of a rejected pod is kept from pods of the same shape. Optional.
	LeftAlone func(pod *corev1.Pod) time.Duration

	Decisions *Ring
	Flags     *Flags

	// MayRead reports whether the caller may read the pods of a namespace. Optional: nil means all of them.
	MayRead func(r *http.Request, namespace string) bool
	// MayReadNode reports whether the caller may read a node. Optional: nil means all of them.
	MayReadNode func(r *http.Request, node string) bool
	// Audit is called for every accepted change. Optional.
	Audit func(r *http.Request, value string)
	// Mounts are the endpoints of plugins other than ours.
	Mounts []Mount
}

// Mount is what one plugin serves below /apis/v1/plugins/<plugin>.
type Mount struct {
	Plugin  string
	Routes  []Route
	Handler http.Handler
}

// Route is one endpoint in gin's spelling, with its full path.
type Route struct {
	Method, Path string
}

func (c *Config) complete() error {
	var missing []error
	for _, field := range []struct {
		name   string
		absent bool
	}{
		{"View", c.View == nil},
		{"NodeInfo", c.NodeInfo == nil},
		{"Pod", c.Pod == nil},
		{"Evaluator", c.Evaluator == nil},
		{"Decisions", c.Decisions == nil},
		{"Flags", c.Flags == nil},
	} {
		if field.absent {
			missing = append(missing, errors.New("diagnostics: Config."+field.name+" is required"))
		}
	}
	if c.Leading == nil {
		c.Leading = func() bool { return true }
	}
	if c.Ready == nil {
		c.Ready = func() error { return nil }
	}
	if c.Queue == nil {
		c.Queue = func(*corev1.Pod) *view.Queue { return nil }
	}
	if c.Ages == nil {
		c.Ages = func(string) map[string]time.Duration { return nil }
	}
	if c.Mispredictions == nil {
		c.Mispredictions = func() []Misprediction { return nil }
	}
	if c.LeftAlone == nil {
		c.LeftAlone = func(*corev1.Pod) time.Duration { return 0 }
	}
	if c.MayRead == nil {
		c.MayRead = func(*http.Request, string) bool { return true }
	}
	if c.MayReadNode == nil {
		c.MayReadNode = func(*http.Request, string) bool { return true }
	}
	if c.Audit == nil {
		c.Audit = func(*http.Request, string) {}
	}
	return errors.Join(missing...)
}

// Misprediction is a pod for which the kubelet of its node did something else than the scheduler had predicted.
type Misprediction struct {
	Time      time.Time `json:"time"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Node      string    `json:"node"`
	// Mode is the node's topology mode, Model the release of the kubelet that was predicted.
	Mode  string `json:"mode"`
	Model string `json:"model"`
	// Kinds are rejected, mask, cpus, memory and device.
	Kinds []string `json:"kinds"`
	// Reason is the kubelet's, of rejected pods.
	Reason    string                      `json:"reason,omitempty"`
	Predicted annotation.PlacedContainers `json:"predicted,omitempty"`
	Actual    annotation.PlacedContainers `json:"actual,omitempty"`
}

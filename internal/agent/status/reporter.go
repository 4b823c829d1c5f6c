package status

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Options are what a Reporter needs.
type Options struct {
	Client kubernetes.Interface
	// Node is the Node's name.
	Node  string
	Agent Agent
	// Recorder takes Events; nil drops them. It must not block.
	Recorder events.EventRecorder
	Metrics  *Metrics
	Clock    clock.PassiveClock
}

// Agent is what a Reporter asks of the agent of its node.
type Agent interface {
	// CurrentNode returns the last known state of the Node; nil while it is not known.
	CurrentNode() *corev1.Node
	// Leaves reports whether the agent leaves the Node: then no condition but NodeLeft is written.
	Leaves() bool
}

// Reporter reports on one Node and its pods. It is safe for concurrent use.
type Reporter struct {
	o Options

	mu sync.Mutex // guards the fields below; never held across a call out of the package
	// written are the conditions as they were last written, by type.
	written map[event.Reason]corev1.NodeCondition
	// joined is what each source says of a condition that holds, by type, then source.
	joined map[event.Reason]map[string]statement
	// annotations is what was reported of each pod's annotations, claims what of its allocation.
	annotations map[types.UID]string
	claims      map[ledger.Problem]claim
}

// New returns a Reporter that has reported nothing.
func New(o Options) *Reporter {
	return &Reporter{
		o: o, written: map[event.Reason]corev1.NodeCondition{}, joined: map[event.Reason]map[string]statement{},
		annotations: map[types.UID]string{},
	}
}

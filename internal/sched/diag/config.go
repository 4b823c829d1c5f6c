package diag

import (
	"context"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/view"
)

// Scheduler is what the handlers read of the scheduler. Its methods wait for no cycle.
type Scheduler interface {
	// Leading reports whether this instance is the leader.
	Leading() bool
	// Ready returns why nothing can be answered yet, nil when all is known.
	Ready() error
	// View returns a node's account, nil when the node is not known.
	View(node string) *ledger.View
	// NodeInfo returns a private copy of the scheduler's view of a node.
	NodeInfo(node string) (fwk.NodeInfo, bool)
	// Pod returns a pod, nil when there is none. Of pods that ended it has those that their kubelet rejected.
	Pod(namespace, name string) *corev1.Pod
	// Claims returns the ResourceClaims of a pod with a node that have devices.
	Claims(pod *corev1.Pod) []view.HeldClaim
	// Evaluate runs all filters for a pod that holds no node on every node of one snapshot.
	Evaluate(ctx context.Context, pod *corev1.Pod) (view.Verdict, error)
	// Queue returns the state of a pod in the scheduling queue.
	Queue(pod *corev1.Pod) *view.Queue
	// RemainingBackoff returns how much longer the node of a rejected pod is kept from pods of the same shape.
	RemainingBackoff(pod *corev1.Pod) time.Duration
	// Configuration returns what the process runs with.
	Configuration() (*view.Configuration, error)
}

// Questions are answered about other clusters, by whatif.Engine.
type Questions interface {
	Answer(ctx context.Context, q *view.WhatIf) (*view.WhatIfAnswer, error)
	// Fixes returns what was tried and helps a pod that waits, of which said says why.
	Fixes(ctx context.Context, pod *corev1.Pod, said *view.Pod) ([]view.Fix, *view.FixSearch, error)
}

// Journal is what the scheduler has recorded.
type Journal interface {
	// File returns the lines of a file, and the names of that file and of the one before it: "" where there is none. An
	// empty name stands for the newest file.
	File(name string) (found, earlier string, text []byte, err error)
}

// Config is what the handlers read. All of it is safe for concurrent use.
type Config struct {
	Scheduler
	// WhatIf answers questions about other clusters.
	WhatIf Questions
	// Journal is nil where none is written.
	Journal Journal
	// Log gets every accepted change, with the caller's name.
	Log klog.Logger

	// Decisions has the last decisions of the scheduler, Flags the switches that callers may change. Both are shared
	// with the scheduling loop.
	Decisions *Ring
	Flags     *Flags
	// Authorizer decides which pods and nodes a caller may read; without one, all of them.
	Authorizer authorizer.Authorizer
	// Plugins are those of the profiles, one for each name; those that are Providers serve endpoints.
	Plugins []fwk.Plugin
	// Mounts are the endpoints of plugins that bring a handler of their own.
	Mounts []Mount
}

// Provider is a plugin that serves diagnostics of its own below PluginPrefix and its name.
type Provider interface {
	fwk.Plugin
	Diagnostics() Service
}

// Explainer is a plugin that adds what it knows to the explanation of a pod without a node. mayRead reports whose pods
// the caller may read.
type Explainer interface {
	fwk.Plugin
	Explain(pod *corev1.Pod, into *view.Pod, mayRead func(namespace string) bool)
}

// DeviceExplainer is a plugin that adds to the explanation of a pod how devices were compared for it, or which ones the
// nodes lack that refuse it.
type DeviceExplainer interface {
	fwk.Plugin
	ExplainDevices(pod *corev1.Pod, into *view.Pod)
}

// Service is what a Provider serves.
type Service struct {
	// Aliases are spellings of the plugin's name that old documents use. They are served and not listed.
	Aliases []string
	// Endpoints are listed under the plugin's name among the services.
	Endpoints []Endpoint
}

// NamesNode is the Names of paths with the name of a Node.
const NamesNode = "node"

// Endpoint is one GET path of a plugin.
type Endpoint struct {
	// Path is below the plugin's, in net/http's spelling. {nodeName} in it is a node that the caller may read.
	Path string
	// Names is what {name} in Path names. With NamesNode it is a node that the caller may read.
	Names string
	// Answer returns the JSON, nil for an unknown node or name. mayRead reports whose pods the caller may read.
	Answer func(r *http.Request, mayRead func(namespace string) bool) any
}

// Mount is what one plugin serves below /apis/v1/plugins/<plugin>.
type Mount struct {
	// Plugin is the name in the prefix of all paths. Two plugins must not have the same one.
	Plugin string
	// Routes are listed among the services. Handler gets each request below the prefix that no Endpoint serves, whether
	// or not a route lists its path.
	Routes  []Route
	Handler http.Handler
}

// Route is one endpoint in gin's spelling, with its full path.
type Route struct {
	Method, Path string
}

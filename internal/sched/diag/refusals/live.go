package refusals

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/view"
)

// Live evaluates pods beside a running scheduler, with profiles that are made when the first question comes: most
// processes are never asked. Safe for concurrent use; evaluations wait for each other.
type Live struct {
	// build is that of NewLive.
	build func(fwk.SharedLister) (map[string]framework.Framework, error)

	mu sync.Mutex // guards what follows, and every plugin of profiles
	// profiles are by scheduler name; nil before the first question.
	profiles map[string]framework.Framework
	// nodes are updated before each evaluation. The profiles read them.
	nodes Nodes
	// round counts the snapshots that were taken. Answers carry it as their generation.
	round int64
}

// Nodes are the scheduler's nodes and pods as of the last update.
type Nodes interface {
	fwk.SharedLister
	// Update takes over the nodes as the scheduler has them now.
	Update(logger klog.Logger) error
	// IsPlaced reports whether the scheduler has placed a pod on a node by now, where its Binding may be under way. Any
	// goroutine may call it.
	IsPlaced(pod *corev1.Pod) bool
}

// NewLive returns an evaluator over the scheduler's nodes. build makes the profiles' frameworks, by scheduler name, on
// the nodes that it is given; they must be instances of their own, with a pod nominator set.
func NewLive(nodes Nodes, build func(fwk.SharedLister) (map[string]framework.Framework, error)) *Live {
	return &Live{nodes: nodes, build: build}
}

// Evaluate runs all filters for a pod on the nodes as the scheduler has them now.
func (l *Live) Evaluate(ctx context.Context, pod *corev1.Pod) (view.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := l.profile(ctx, pod.Spec.SchedulerName)
	if err != nil {
		return view.Verdict{}, err
	}
	if f == nil {
		names := slices.Sorted(maps.Keys(l.profiles))
		return view.Verdict{Names: names, Nodes: l.count(), Generation: l.round}, nil
	}
	v, err := Of(ctx, f, pod)
	if len(pod.Spec.SchedulingGates) == 0 { // which are known without a scheduler
		v.Findings = append(Held(ctx, f, pod), v.Findings...)
	}
	v.Generation = l.round
	return v, err
}

// profile returns the profile of a scheduler name on the nodes as the scheduler has them now; nil for one that is not
// served. The caller holds mu.
func (l *Live) profile(ctx context.Context, name string) (framework.Framework, error) {
	if l.profiles == nil {
		profiles, err := l.build(l.nodes)
		if err != nil {
			return nil, fmt.Errorf("make the plugins of the evaluator: %w", err)
		}
		l.profiles = profiles
	}
	return l.profiles[name], l.refresh(ctx)
}

// Refusals is After on the nodes as the scheduler has them now; nothing for a profile that is not served.
func (l *Live) Refusals(ctx context.Context, profile string, status *fwk.Status) ([]why.Finding, view.Verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := l.profile(ctx, profile)
	if err != nil || f == nil {
		return nil, view.Verdict{}, err
	}
	return After(ctx, f, status)
}

// Placed reports whether the scheduler has placed a pod on a node, where its Binding may be under way.
func (l *Live) Placed(pod *corev1.Pod) bool { return l.nodes.IsPlaced(pod) }

// NodeInfo returns a copy of the scheduler's view of a node.
func (l *Live) NodeInfo(name string) (fwk.NodeInfo, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(context.Background()); err != nil {
		return nil, false
	}
	n, err := l.nodes.NodeInfos().Get(name)
	if err != nil || n.Node() == nil {
		return nil, false
	}
	return n.Snapshot(), true
}

// count returns how many nodes there are.
func (l *Live) count() int {
	all, _ := l.nodes.NodeInfos().List() // never fails
	return len(all)
}

// refresh updates the snapshot. The caller holds mu.
func (l *Live) refresh(ctx context.Context) error {
	if err := l.nodes.Update(klog.FromContext(ctx)); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	l.round++
	return nil
}

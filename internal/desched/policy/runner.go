package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/evict"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/desched/policy/plugin"
	"github.com/tenon-project/tenon/internal/view"
)

// Fitter asks the scheduler about pods that do not exist yet.
type Fitter interface {
	// Fit returns the node of nodes on which the scheduler would place a pod like this one if this one were gone; ""
	// where it would place it on none.
	Fit(ctx context.Context, pod *corev1.Pod, nodes []string) (string, error)
}

// Options are what a Runner works with.
type Options struct {
	Settings descheduler.Settings
	// Policy has the limits of every move, from NewPolicy.
	Policy *evict.Policy
	// PriorityClass returns the value of a PriorityClass.
	PriorityClass func(name string) (int32, error)
	Cluster       Cluster
	// Nodes and Pods are the objects of the cluster.
	Nodes, Pods cache.SharedIndexInformer
	// Jobs are the PodMigrationJobs of the cluster.
	Jobs cache.Store
	// Room finds moves; nil where no scheduler can be asked.
	Room Room
	// Loads are what nodes use; nil where no plugin asks.
	Loads  Loads
	Writer Writer
	// Fitter is asked where a plugin or an evictor has nodeFit.
	Fitter Fitter
	Clock  clock.WithTicker
}

// Cluster is what is known of the cluster.
type Cluster interface {
	// Read calls a function with the state of the pods. The function may set jobs that are about to be created.
	Read(func(*evict.State))
	// Unsynced returns the kinds whose caches are not complete: no round begins before there are none.
	Unsynced() []string
}

// Room finds moves of pods that refusals has nothing against.
type Room interface {
	// PlanAmong returns those after which other pods fit.
	PlanAmong(ctx context.Context, r *view.RoomRequest, refusals func(*evict.Pod) []evict.Refusal,
	) (*view.RoomAnswer, error)
	// Defragment returns those that lower the fragmentation by minFall each.
	Defragment(ctx context.Context, maxMoves int, minFall int64, refusals func(*evict.Pod) []evict.Refusal,
	) (*view.RoomAnswer, error)
}

// Loads are what nodes use.
type Loads interface{ View(node string) load.View }

// Writer writes to the API server.
type Writer interface {
	// CreateJob creates a PodMigrationJob, and returns it as the API server has it.
	CreateJob(context.Context, *v1alpha1.PodMigrationJob) (*v1alpha1.PodMigrationJob, error)
	// PatchPod applies a merge patch to a pod.
	PatchPod(ctx context.Context, pod *corev1.Pod, patch []byte) error
}

// Runner runs rounds.
type Runner struct {
	Options

	profiles []profile
	wake     chan struct{} // has an element when a round is to begin early
	// detectors are those of profiles, by name. Only the round that runs uses them.
	detectors map[string]*load.Detector

	mu    sync.Mutex // guards what is below
	last  []Decision
	ended time.Time // when the last round ended; zero before
}

// profile is one of the settings, with the predicates of its DefaultEvictor; nil if it has none.
type profile struct {
	descheduler.Profile

	evictor *evict.Policy
}

// Decision is what became of a move that a plugin proposed.
type Decision struct {
	Profile, Plugin string
	// Namespace and Pod are the pod's; Node is where it runs.
	Namespace, Pod, Node string
	// Reason is why the plugin wants to move the pod.
	Reason string
	// Job is the PodMigrationJob that was created; "" where the move was refused, or would have been made but for
	// dryRun.
	Job string
	// Refusals are why the pod was not moved, the root first. None: the move was accepted.
	Refusals []evict.Refusal
}

// New returns a Runner. It fails if a profile cannot be run.
func New(o Options) (*Runner, error) {
	r := &Runner{Options: o, wake: make(chan struct{}, 1), detectors: map[string]*load.Detector{}}
	known := plugin.All()
	for _, p := range o.Settings.Profiles {
		made := profile{Profile: p}
		for _, enabled := range slices.Concat(p.Deschedule, p.Balance) {
			if known[enabled.Name] == nil {
				return nil, fmt.Errorf("profile %s: plugin %s does not exist", p.Name, enabled.Name)
			}
		}
		if p.Evictor != nil {
			var err error
			if made.evictor, err = ofProfile(p.Evictor, o.Settings.Migration.EvictAllBarePods,
				o.PriorityClass); err != nil {
				return nil, fmt.Errorf("profile %s: %w", p.Name, err)
			}
		}
		r.profiles = append(r.profiles, made)
	}
	_, err := o.Nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: r.nodeChanged})
	if err != nil {
		return nil, fmt.Errorf("follow nodes: %w", err)
	}
	return r, nil
}

// nodeChanged begins a round when the taints or labels of a node have changed.
func (r *Runner) nodeChanged(before, after any) {
	b, a := before.(*corev1.Node), after.(*corev1.Node)
	if maps.Equal(b.Labels, a.Labels) && reflect.DeepEqual(b.Spec.Taints, a.Spec.Taints) {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default: // one is to begin
	}
}

// NeedLeaderElection is true: two runners would move twice as many pods.
func (*Runner) NeedLeaderElection() bool { return true }

const (
	// pause is the least time between two rounds: nodes often change together.
	pause = 5 * time.Second
	// syncInterval is how often the caches are looked at until they are complete.
	syncInterval = time.Second
)

// Start runs a round at each interval, and when nodes have changed, until ctx ends.
func (r *Runner) Start(ctx context.Context) error {
	if len(r.profiles) == 0 {
		<-ctx.Done()
		return nil
	}
	for len(r.Cluster.Unsynced()) > 0 {
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(syncInterval):
		}
	}
	tick := r.Clock.NewTicker(r.Settings.Interval)
	defer tick.Stop()
	for {
		if err := r.Round(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Descheduling round failed")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		case <-r.wake:
		}
	}
}

// Round runs all profiles once.
func (r *Runner) Round(ctx context.Context) error {
	if missing := r.Cluster.Unsynced(); len(missing) > 0 {
		return fmt.Errorf("begin a round: the caches of %v are not complete", missing)
	}
	n := r.newRound()
	var failed []error
	for _, p := range r.profiles {
		n.begin(p)
		for _, enabled := range slices.Concat(p.Deschedule, p.Balance) {
			failed = append(failed, wrong(enabled.Name, n.run(ctx, enabled)))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.ended = n.decisions, r.Clock.Now()
	return errors.Join(failed...)
}

func wrong(name string, s *plugin.Status) error {
	if s == nil || s.Err == nil {
		return nil
	}
	return fmt.Errorf("plugin %s: %w", name, s.Err)
}

// Last returns what became of the moves of the last round that has ended; nil before.
func (r *Runner) Last() *view.Round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended.IsZero() {
		return nil
	}
	out := &view.Round{Time: r.ended, Refused: []view.RefusedMove{}}
	for _, d := range r.last {
		if len(d.Refusals) == 0 {
			out.Accepted++
			continue
		}
		out.Refused = append(out.Refused, view.RefusedMove{
			KeptPod: view.KeptPod{
				Pod: d.Namespace + "/" + d.Pod, Node: d.Node, Reasons: view.KeptReasons(d.Refusals),
			},
			Plugin: d.Profile + "/" + d.Plugin, Wish: d.Reason,
		})
	}
	return out
}

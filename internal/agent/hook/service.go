package hook

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/core/qos"
)

// ErrDegraded holds back LSE pods on a node that cannot promise to keep others off their CPUs.
var ErrDegraded = errors.New("EnforcementDegraded")

// Options are what a Service needs. Engine is required.
type Options struct {
	Engine *apply.Engine
	// Agent is the agent of the node; nil for Standalone.
	Agent Agent
	// AllowDegraded lets LSE pods start where the Agent says why they should not.
	AllowDegraded bool
	// Reports gets what is to be reported; nil drops it.
	Reports Reports
	// Clock is the real one when nil.
	Clock clock.PassiveClock
	// WriteWait is how long a start waits for sets of other containers that the runtime is still writing. A runtime
	// that serves one plugin at a time writes none of them meanwhile; it may only have to report one.
	WriteWait time.Duration
}

// Agent is what a Service asks of the agent of its node. Its methods must not block.
type Agent interface {
	// Writes reports whether the agent decides about cpusets now. While it does not, answers are empty and no container
	// is blocked. Leaves reports whether the engine returns groups to the kubelet meanwhile.
	Writes() bool
	Leaves() bool
	// WhyDegraded says why enforcement cannot be promised on this node; "" when it can. LSE pods are refused while it
	// is not, unless AllowDegraded.
	WhyDegraded() string
	// Devices is what is known of the node's devices; nil for a node without.
	Devices() *inject.Node
	// Trust returns what is known of the scheduler of a pod: the labels and annotations of Tenon on an Untrusted one
	// are ignored.
	Trust(*Pod) Trust
	// Synced is called at the end of each Sync.
	Synced()
}

// Reports takes what users are to see. Its methods must not block.
type Reports interface {
	// Blocked takes each step that failed.
	Blocked(Trouble)
	// Overridden counts an update that was answered with values other than the requested ones.
	Overridden()
	// Injected takes the time that it took to decide about the devices of a container, Caught counts a container that
	// was to be created with others.
	Injected(time.Duration)
	Caught()
}

// Standalone is the Agent of a Service by itself: it always writes, has no devices and trusts all pods.
type Standalone struct{}

// Writes is true.
func (Standalone) Writes() bool { return true }

// Leaves is false.
func (Standalone) Leaves() bool { return false }

// WhyDegraded returns no reason.
func (Standalone) WhyDegraded() string { return "" }

// Devices returns none.
func (Standalone) Devices() *inject.Node { return nil }

// Trust trusts every pod.
func (Standalone) Trust(*Pod) Trust { return Trusted }

// Synced does nothing.
func (Standalone) Synced() {}

// Trust is what is known of the scheduler of a pod.
type Trust uint8

// What may be known.
const (
	// Trusted schedulers are those whose allocations count.
	Trusted Trust = iota
	// Unknown is the scheduler of a pod that the API server has not sent yet.
	Unknown
	// Untrusted is any other: who wrote the annotations of its pods is not known.
	Untrusted
)

// Trouble is a step of a container that was blocked, or would have been if its pod used something of Tenon.
type Trouble struct {
	UID, Namespace, Name, Container string
	Err                             *apply.Blocked
	// LetPass reports that the step was not blocked, as the pod uses nothing of Tenon.
	LetPass bool
}

// Service is the Handler over an Engine.
type Service struct {
	o       Options
	updates chan struct{} // holds one token while there are sets to push to the runtime

	mu         sync.Mutex            // guards the fields below; never held across a call to the engine
	sandboxes  map[string]string     // by sandbox id: the UID of its pod
	containers map[string]*container // by container id: those that the runtime has reported and not removed
	writeEnded chan struct{}         // closed, and replaced, when a write of the runtime has ended
}

var _ Handler = (*Service)(nil)

// New returns a Service that knows no pod yet.
func New(o Options) *Service {
	if o.Agent == nil {
		o.Agent = Standalone{}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	s := &Service{
		o: o, updates: make(chan struct{}, 1),
		sandboxes: map[string]string{}, containers: map[string]*container{}, writeEnded: make(chan struct{}),
	}
	o.Engine.Attach(s)
	return s
}

// Ready implements Handler.
func (s *Service) Ready() bool { return !s.o.Agent.Writes() || s.o.Engine.Ready() }

// Sync implements Handler. The tree itself is brought in order by the engine, which looks at all of it anew.
func (s *Service) Sync(pods []Pod, containers []Container) {
	s.mu.Lock()
	lost, ended := map[string]bool{}, s.containers
	for _, uid := range s.sandboxes {
		lost[uid] = true
	}
	s.sandboxes, s.containers = map[string]string{}, map[string]*container{}
	for i := range pods {
		s.sandboxes[pods[i].ID] = pods[i].UID
		delete(lost, pods[i].UID)
	}
	s.mu.Unlock()
	for uid := range lost {
		s.o.Engine.Withdraw(uid)
	}
	alive := map[string]bool{}
	for i := range containers {
		alive[containers[i].Pod.ID] = alive[containers[i].Pod.ID] || !containers[i].Ended
	}
	for i := range pods {
		// Runtimes keep dead sandboxes: kubelets remove them a minute after their pod, which may be gone from the API
		// by now. A living sandbox without containers is introduced when it gets its first container.
		if alive[pods[i].ID] {
			s.o.Engine.Introduce(s.podOf(&pods[i]))
		}
	}
	for i := range containers {
		c := &containers[i]
		delete(ended, c.ID)
		s.record(c)
		if at := groupOf(c.Cgroup); at != "" {
			s.o.Engine.AddStarted(engineContainer(c), c.Ended)
		}
	}
	for id, c := range ended {
		s.o.Engine.Stop(apply.Container{PodUID: c.uid, ID: id, Name: c.name, Group: c.group})
	}
	s.o.Engine.Recheck()
	s.o.Agent.Synced()
}

// RunPod implements Handler.
func (s *Service) RunPod(_ context.Context, p Pod) error {
	s.mu.Lock()
	for id, uid := range s.sandboxes { // a runtime proxy does not report those that could not be run
		if uid == p.UID && uid != "" {
			delete(s.sandboxes, id)
		}
	}
	s.sandboxes[p.ID] = p.UID
	s.mu.Unlock()
	d := s.podOf(&p)
	s.o.Engine.Introduce(d)
	s.o.Engine.Visit(p.UID) // the runtime gave the sandbox a group, or is about to
	if !s.o.Agent.Writes() {
		return nil
	}
	if err := s.refuseDegraded(&Container{Pod: p}, d); err != nil {
		return s.reportBlocked(&Container{Pod: p}, err)
	}
	return nil
}

// RemovePod implements Handler. A pod may have had several sandboxes: the engine forgets it with the last one.
func (s *Service) RemovePod(p Pod) {
	s.mu.Lock()
	uid, known := s.sandboxes[p.ID]
	if !known {
		uid = p.UID
	}
	delete(s.sandboxes, p.ID)
	last := true
	for _, other := range s.sandboxes {
		last = last && other != uid
	}
	maps.DeleteFunc(s.containers, func(_ string, c *container) bool { return c.sandbox == p.ID })
	s.mu.Unlock()
	if last {
		s.o.Engine.Withdraw(uid)
	}
}

// Create implements Handler.
func (s *Service) Create(_ context.Context, c Container) (Resources, []Update, error) {
	rows, err := s.decide(&c)
	if err != nil {
		return Resources{}, nil, s.reportBlocked(&c, err)
	}
	a := resources(rows)
	known := s.record(&c)
	s.dropReplaced(&c)
	s.mu.Lock()
	known.answered = a.CPUs
	if a.CPUs != "" {
		known.stored = a.CPUs
	}
	s.mu.Unlock()
	return a, s.shrinkOthers(&c, known, a.CPUs), nil
}

// decide returns the rows of a container that is to be created.
func (s *Service) decide(c *Container) ([]desired.Row, error) {
	if !s.o.Agent.Writes() {
		return nil, nil
	}
	if err := s.refuseUnknown(c); err != nil {
		return nil, err
	}
	pod := s.podOf(&c.Pod)
	if err := s.refuseDegraded(c, pod); err != nil {
		return nil, err
	}
	return s.rows(c, pod, s.o.Engine.Create)
}

// rows returns the rows of a container of a pod, by the Engine's Create or Peek.
func (s *Service) rows(c *Container, pod desired.Pod, ask func(apply.Container) ([]desired.Row, error)) ([]desired.Row,
	error,
) {
	if !s.o.Agent.Writes() {
		return nil, nil
	}
	s.o.Engine.Introduce(pod)
	e := engineContainer(c)
	if !s.o.Engine.Ready() {
		return nil, e.Blocked(apply.ErrNotReady, apply.NotReady)
	}
	return ask(e)
}

// refuseUnknown rejects a container of a pod that uses Tenon by its labels or annotations, until the API server has
// sent the pod: they count only if its scheduler is trusted. The kubelet tries again.
func (s *Service) refuseUnknown(c *Container) error {
	if s.o.Agent.Trust(&c.Pod) != Unknown || !desired.Uses(c.Labels, c.Annotations) {
		return nil
	}
	return engineContainer(c).Blocked(apply.ErrNotReady,
		"the API server has not sent the pod yet, so its scheduler is unknown")
}

// refuseDegraded rejects LSE pods where their exclusive CPUs cannot be guaranteed.
func (s *Service) refuseDegraded(c *Container, d desired.Pod) error {
	if d.Entry.Role != qos.Exclusive || s.o.AllowDegraded {
		return nil
	}
	if why := s.o.Agent.WhyDegraded(); why != "" {
		return engineContainer(c).Blocked(ErrDegraded,
			"LSE pods are refused here without --allow-degraded-enforcement: %s", why)
	}
	return nil
}

// Check implements Handler.
func (s *Service) Check(_ context.Context, c Container) error {
	rows, err := s.decide(&c)
	if err != nil {
		return s.reportBlocked(&c, err)
	}
	want := resources(rows)
	s.mu.Lock()
	answered := ""
	if known := s.containers[c.ID]; known != nil {
		answered = known.answered
	}
	s.mu.Unlock()
	switch {
	case want.CPUs != "" && c.Has.CPUs != want.CPUs && (answered == "" || c.Has.CPUs != answered):
		return s.reportBlocked(&c, differs(&c, "cpuset.cpus", c.Has.CPUs, want.CPUs))
	case want.Mems != "" && c.Has.Mems != want.Mems:
		return s.reportBlocked(&c, differs(&c, "cpuset.mems", c.Has.Mems, want.Mems))
	}
	return nil
}

func differs(c *Container, file, got, want string) error {
	return engineContainer(c).Blocked(apply.ErrEnforcement,
		"%s is to be created with %q, want %q: the agent was not asked, or another writer sets it too", file, got, want)
}

// Start implements Handler.
func (s *Service) Start(ctx context.Context, c Container) error {
	if at := groupOf(c.Cgroup); at != "" || c.ID != "" {
		s.record(&c)
		s.dropReplaced(&c)
	}
	s.endShrinking(c.ID)
	s.o.Engine.Introduce(s.podOf(&c.Pod))
	if !s.o.Agent.Writes() {
		if groupOf(c.Cgroup) != "" {
			s.o.Engine.AddStarted(engineContainer(&c), false) // the agent may come to write while the container runs
		}
		return nil
	}
	err := s.verify(ctx, &c)
	if err == nil {
		return nil
	}
	if err = s.reportBlocked(&c, err); err != nil {
		s.endPending(c.ID, starting) // the container does not start, so the runtime writes nothing
	}
	return err
}

// verify checks that a container may start, and again after each write of the runtime that ends while it waits, for
// WriteWait at most.
func (s *Service) verify(ctx context.Context, c *Container) error {
	limit := time.NewTimer(s.o.WriteWait)
	defer limit.Stop()
	for {
		s.mu.Lock()
		ended := s.writeEnded
		s.mu.Unlock()
		err := s.o.Engine.Start(ctx, engineContainer(c))
		switch {
		case c.Running:
			s.endPending(c.ID, starting)
			if errors.Is(err, apply.ErrNoGroup) {
				return nil // it has ended already
			}
			return err
		case errors.Is(err, apply.ErrNoGroup):
			err = s.admit(ctx, c)
		}
		if err != nil {
			return err
		}
		if err = s.checkPendingWrites(c); err == nil {
			return nil
		}
		select {
		case <-ended:
		case <-limit.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// admit lets a container start whose group the runtime creates with its first process. Until the runtime reports that
// the container runs, or has failed, the set that it writes is pending, and keeps exclusive containers of these CPUs
// from starting. It is recorded before the engine checks, so that of two containers that start at once one sees the
// other.
func (s *Service) admit(ctx context.Context, c *Container) error {
	if c.Has.CPUs == "" {
		if rows, err := s.decide(c); err != nil || resources(rows).CPUs == "" {
			return err
		}
	}
	s.mu.Lock()
	if known := s.containers[c.ID]; known != nil && c.Has.CPUs != "" {
		expires := s.o.Clock.Now().Add(startLimit)
		known.stored, known.pending[starting] = c.Has.CPUs, pendingWrite{cpus: c.Has.CPUs, expires: expires}
	}
	s.mu.Unlock()
	return s.o.Engine.Admit(ctx, engineContainer(c), c.Has.CPUs)
}

// Update implements Handler.
func (s *Service) Update(_ context.Context, c Container, asked Resources) (Resources, error) {
	rows, err := s.rows(&c, s.podOf(&c.Pod), s.o.Engine.Peek)
	if err != nil {
		return Resources{}, s.reportBlocked(&c, err)
	}
	want := resources(rows)
	a := Resources{CPUs: want.CPUs}
	if asked.Mems != "" {
		a.Mems = want.Mems
	}
	if asked.Quota != nil {
		a.Quota = want.Quota
	}
	if asked.Shares != 0 || asked.Weight != 0 {
		a.Shares, a.Weight = want.Shares, want.Weight
	}
	if asked.Memory != 0 {
		a.Memory = want.Memory
	}
	if s.o.Reports != nil && overrides(a, asked) {
		s.o.Reports.Overridden()
	}
	if a.CPUs == "" && asked.CPUs == "" {
		return a, nil
	}
	known := s.record(&c)
	s.mu.Lock()
	before := known.pending[replied]
	if a.CPUs == "" {
		known.stored = asked.CPUs
	}
	s.mu.Unlock()
	if a.CPUs != "" {
		wanted := func() string {
			if rows, err := s.rows(&c, s.podOf(&c.Pod), s.o.Engine.Peek); err == nil {
				a.CPUs = cmp.Or(resources(rows).CPUs, a.CPUs)
			}
			return a.CPUs
		}
		s.recordUntilStable(wanted, func(cpus string) {
			known.pending[replied] = before // without the set that was recorded last and is not sent
			s.addPending(known, replied, cpus)
		})
	}
	return a, nil
}

// overrides reports whether an answer changes what was asked for.
func overrides(answer, asked Resources) bool {
	return asked.CPUs != "" && answer.CPUs != "" && answer.CPUs != asked.CPUs ||
		asked.Mems != "" && answer.Mems != "" && answer.Mems != asked.Mems ||
		asked.Quota != nil && answer.Quota != nil && *answer.Quota != *asked.Quota ||
		answer.Shares != 0 && answer.Shares != asked.Shares || answer.Memory != 0 && answer.Memory != asked.Memory
}

// Updated implements Handler.
func (s *Service) Updated(c Container) { s.endPending(c.ID, replied) }

// Stop implements Handler.
func (s *Service) Stop(c Container) {
	s.endPending(c.ID, starting)
	s.endShrinking(c.ID)
	s.mu.Lock()
	if known := s.containers[c.ID]; known != nil {
		known.ended = true
	}
	s.mu.Unlock()
	if e := s.identify(&c); e.Group != "" {
		s.o.Engine.Stop(e)
		return
	}
	s.o.Engine.Recheck()
}

// Remove implements Handler.
func (s *Service) Remove(c Container) {
	e := s.identify(&c)
	s.endShrinking(c.ID)
	s.mu.Lock()
	delete(s.containers, c.ID)
	s.mu.Unlock()
	if e.Group != "" {
		s.o.Engine.Remove(e)
	}
}

// reportBlocked reports a blocked step and returns the error for the runtime; nil for a pod that uses no Tenon
// resources, which is never rejected.
func (s *Service) reportBlocked(c *Container, err error) error {
	blocked, ok := errors.AsType[*apply.Blocked](err)
	if !ok {
		return err
	}
	pass := (s.o.Agent.Trust(&c.Pod) == Untrusted || !desired.Uses(c.Labels, c.Annotations)) && !s.o.Engine.Uses(c.UID)
	s.report(c, blocked, pass)
	if pass {
		return nil
	}
	return blocked
}

func (s *Service) report(c *Container, blocked *apply.Blocked, pass bool) {
	if s.o.Reports != nil {
		s.o.Reports.Blocked(Trouble{
			UID: c.UID, Namespace: c.Namespace, Name: c.Pod.Name, Container: c.Name, Err: blocked, LetPass: pass,
		})
	}
}

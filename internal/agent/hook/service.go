package hook

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// ErrDegraded holds back LSE pods on a node that cannot promise to keep others off their CPUs.
var ErrDegraded = errors.New("EnforcementDegraded")

// Options are what a Service needs. Engine is required.
type Options struct {
	Engine *apply.Engine
	// Writes reports whether the agent decides about cpusets now; nil is always. While it does not, answers are empty
	// and nothing is held back.
	Writes func() bool
	// Leaves reports whether the engine gives groups back, while the agent does not decide; nil is never.
	Leaves func() bool
	// Degraded says why enforcement cannot be promised on this node; "" when it can, as nil says. LSE pods are refused
	// while it is not, unless AllowDegraded.
	Degraded      func() string
	AllowDegraded bool
	// Devices is what is known of the node's devices; nil for a node without. It must not block.
	Devices func() *inject.Node
	// Synced is called at the end of each Sync. It must not block; nil is not called.
	Synced func()
	// Clock is the real one when nil.
	Clock clock.PassiveClock
	// Patience is how long a start waits for sets of others that the runtime is still writing. A runtime that serves
	// one plugin at a time writes none of them meanwhile, it may only have to report one.
	Patience time.Duration
	// Report is called with each step that failed. It must not block; nil drops them.
	Report func(Trouble)
	// Overridden is called for each update that was answered with values other than the requested ones. It must not
	// block; nil drops them.
	Overridden func()
	// Injected is called with the time that it took to decide about the devices of a container, Caught for a container
	// that was to be created with others. They must not block; nil is not called.
	Injected func(time.Duration)
	Caught   func()
}

// Trouble is a step of a container that was held back, or that was let pass although it should not have been.
type Trouble struct {
	UID, Namespace, Name, Container string
	Err                             *apply.Blocked
	// LetPass: the pod uses nothing of Tenon, so that it was not held back.
	LetPass bool
}

// Service is the Handler over an Engine.
type Service struct {
	o Options
	// news holds one token while there are sets to push to the runtime.
	news chan struct{}

	mu         sync.Mutex // guards the fields below; never held across a call to the engine
	sandboxes  map[string]string
	containers map[string]*container
	// landings is closed, and another one made, when a set that was sent to the runtime is written.
	landings chan struct{}
}

var _ Handler = (*Service)(nil)

// container is what is remembered of a container.
type container struct {
	uid, group, name, sandbox string
	// stored is the set that the runtime has stored for it, as far as that is known; answered is what Create returned.
	stored, answered string
	// kernel is the set that the kernel has since pass; "" until the engine reports one.
	kernel string
	pass   uint64
	// ended: its processes have ended, and no more sets are pushed for it.
	ended bool
	// flights are sets that were sent to the runtime, which may write them at any time, whatever the engine does
	// meanwhile.
	flights [origins]flight
	// visible are the GPUs that its environment names.
	visible []host.Device
	// others are sets of other containers that were sent with the answer to Create, by container: the runtime has
	// written them when it asks for the start, or gives up.
	others map[string]flight
	// seen is what the runtime said last of a container of a node with devices, mismatch what it was last found to have
	// of others or to lack, first at since.
	seen     *Container
	mismatch string
	since    time.Time
	reported bool
}

// origin is how a set was sent to the runtime.
type origin int

const (
	pushed   origin = iota // unasked
	replied                // in an answer to Update
	starting               // with a container whose group it makes no earlier than its first process
	origins
)

// flight is a set on its way to a group; cpus is "" for none. It expires at until.
type flight struct {
	cpus  string // of all that are on their way
	until time.Time
	more  int // others that were sent before it and may not have been written yet
}

// flightTime is the longest time that a runtime may take to write a set that it received. The runtime reports the
// write, unless it failed.
const flightTime = 5 * time.Second

// startTime is how long a runtime may take to start a container: the longest that kubelets wait by default.
const startTime = 2 * time.Minute

// New returns a Service that knows no pod yet.
func New(o Options) *Service {
	if o.Writes == nil {
		o.Writes = func() bool { return true }
	}
	if o.Leaves == nil {
		o.Leaves = func() bool { return false }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Service{
		o: o, news: make(chan struct{}, 1),
		sandboxes: map[string]string{}, containers: map[string]*container{}, landings: make(chan struct{}),
	}
}

// Ready implements Handler.
func (s *Service) Ready() bool { return !s.o.Writes() || s.o.Engine.Ready() }

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
		// by now. A living one without containers is introduced when it gets its first.
		if alive[pods[i].ID] {
			s.o.Engine.Introduce(podOf(&pods[i]))
		}
	}
	for i := range containers {
		c := &containers[i]
		delete(ended, c.ID)
		s.remember(c)
		if at := groupOf(c.Cgroup); at != "" {
			s.o.Engine.Know(engineContainer(c), c.Ended)
		}
	}
	for id, c := range ended {
		s.o.Engine.Stop(apply.Container{PodUID: c.uid, ID: id, Name: c.name, Group: c.group})
	}
	s.o.Engine.Recheck()
	if s.o.Synced != nil {
		s.o.Synced()
	}
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
	d := podOf(&p)
	s.o.Engine.Introduce(d)
	s.o.Engine.Visit(p.UID) // the runtime gave the sandbox a group, or is about to
	if !s.o.Writes() {
		return nil
	}
	if err := s.refuseDegraded(&Container{Pod: p}, d); err != nil {
		return s.reportBlocked(&Container{Pod: p}, err)
	}
	return nil
}

// RemovePod implements Handler. A pod may have several sandboxes, one after the other.
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
	known := s.remember(&c)
	s.supersede(&c)
	s.mu.Lock()
	known.answered = a.CPUs
	if a.CPUs != "" {
		known.stored = a.CPUs
	}
	s.mu.Unlock()
	return a, s.shrinking(&c, known, a.CPUs), nil
}

// decide returns the rows of a container that is to be created.
func (s *Service) decide(c *Container) ([]desired.Row, error) {
	if !s.o.Writes() {
		return nil, nil
	}
	pod := podOf(&c.Pod)
	if err := s.refuseDegraded(c, pod); err != nil {
		return nil, err
	}
	return s.rows(c, pod, s.o.Engine.Create)
}

// rows returns the rows of a container of a pod, by the Engine's Create or Peek.
func (s *Service) rows(c *Container, pod desired.Pod, by func(apply.Container) ([]desired.Row, error)) ([]desired.Row,
	error,
) {
	if !s.o.Writes() {
		return nil, nil
	}
	s.o.Engine.Introduce(pod)
	e := engineContainer(c)
	if !s.o.Engine.Ready() {
		return nil, e.Blocked(apply.ErrNotReady, apply.NotReady)
	}
	return by(e)
}

// refuseDegraded rejects LSE pods where their exclusive CPUs cannot be guaranteed.
func (s *Service) refuseDegraded(c *Container, d desired.Pod) error {
	if d.Entry.Role != qos.Exclusive || s.o.AllowDegraded || s.o.Degraded == nil {
		return nil
	}
	if why := s.o.Degraded(); why != "" {
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
		s.remember(&c)
		s.supersede(&c)
	}
	s.wrote(c.ID)
	s.o.Engine.Introduce(podOf(&c.Pod))
	if !s.o.Writes() {
		if groupOf(c.Cgroup) != "" {
			s.o.Engine.Know(engineContainer(&c), false) // for the day on which the agent does
		}
		return nil
	}
	err := s.verify(ctx, &c)
	if err == nil {
		return nil
	}
	if err = s.reportBlocked(&c, err); err != nil {
		s.landed(c.ID, starting) // it does not start, so nothing is written
	}
	return err
}

// verify checks that a container may start, anew after each set of another one that lands while it waits.
func (s *Service) verify(ctx context.Context, c *Container) error {
	limit := time.NewTimer(s.o.Patience)
	defer limit.Stop()
	for {
		s.mu.Lock()
		landing := s.landings
		s.mu.Unlock()
		err := s.o.Engine.Start(ctx, engineContainer(c))
		switch {
		case c.Running:
			s.landed(c.ID, starting)
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
		if err = s.landingOn(c); err == nil {
			return nil
		}
		select {
		case <-landing:
		case <-limit.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// admit lets a container start whose group the runtime creates with its first process. Until the runtime reports that
// the container runs, or does not, the set that it writes counts against exclusive containers that are to start. It
// counts from before the engine checks, so that of two containers that start at once one sees the other.
func (s *Service) admit(ctx context.Context, c *Container) error {
	if c.Has.CPUs == "" {
		if rows, err := s.decide(c); err != nil || resources(rows).CPUs == "" {
			return err
		}
	}
	s.mu.Lock()
	if known := s.containers[c.ID]; known != nil && c.Has.CPUs != "" {
		until := s.o.Clock.Now().Add(startTime)
		known.stored, known.flights[starting] = c.Has.CPUs, flight{cpus: c.Has.CPUs, until: until}
	}
	s.mu.Unlock()
	return s.o.Engine.Admit(ctx, engineContainer(c), c.Has.CPUs)
}

// Update implements Handler.
func (s *Service) Update(_ context.Context, c Container, asked Resources) (Resources, error) {
	rows, err := s.rows(&c, podOf(&c.Pod), s.o.Engine.Peek)
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
	if s.o.Overridden != nil && overrides(a, asked) {
		s.o.Overridden()
	}
	if a.CPUs == "" && asked.CPUs == "" {
		return a, nil
	}
	known := s.remember(&c)
	s.mu.Lock()
	before := known.flights[replied]
	if a.CPUs == "" {
		known.stored = asked.CPUs
	}
	s.mu.Unlock()
	if a.CPUs != "" {
		wanted := func() string {
			if rows, err := s.rows(&c, podOf(&c.Pod), s.o.Engine.Peek); err == nil {
				a.CPUs = cmp.Or(resources(rows).CPUs, a.CPUs)
			}
			return a.CPUs
		}
		s.send(wanted, func(cpus string) {
			known.flights[replied] = before
			s.launch(known, replied, cpus)
		})
	}
	return a, nil
}

// overrides reports whether an answer changes what was asked for.
func overrides(answer, asked Resources) bool {
	return asked.CPUs != "" && answer.CPUs != "" && answer.CPUs != asked.CPUs ||
		asked.Mems != "" && answer.Mems != "" && answer.Mems != asked.Mems ||
		asked.Quota != nil && answer.Quota != nil && *answer.Quota != *asked.Quota
}

// Updated implements Handler.
func (s *Service) Updated(c Container) { s.landed(c.ID, replied) }

// Stop implements Handler.
func (s *Service) Stop(c Container) {
	s.landed(c.ID, starting)
	s.wrote(c.ID)
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
	s.wrote(c.ID)
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
	pass := !desired.Uses(c.Labels, c.Annotations) && !s.o.Engine.Uses(c.UID)
	s.report(c, blocked, pass)
	if pass {
		return nil
	}
	return blocked
}

func (s *Service) report(c *Container, blocked *apply.Blocked, pass bool) {
	if s.o.Report != nil {
		s.o.Report(Trouble{
			UID: c.UID, Namespace: c.Namespace, Name: c.Pod.Name, Container: c.Name, Err: blocked, LetPass: pass,
		})
	}
}

// remember stores what the runtime reports of a container.
func (s *Service) remember(c *Container) *container {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.containers[c.ID]
	if known == nil {
		known = &container{}
		if c.ID != "" {
			s.containers[c.ID] = known
		}
	}
	known.uid, known.name, known.sandbox, known.ended = c.UID, c.Name, c.Pod.ID, c.Ended
	if s.o.Devices != nil && s.o.Devices().HasDevices() {
		seen := *c
		seen.Devices = inject.Sight{Privileged: c.Devices.Privileged, Files: c.Devices.Files}
		known.seen = &seen
	}
	if at := groupOf(c.Cgroup); at != "" && c.ID != "" {
		known.group = at
	}
	if c.Has.CPUs != "" {
		known.stored = c.Has.CPUs
	}
	if c.Devices.Env != nil {
		known.visible = inject.Visible(c.Devices.Env)
	}
	return known
}

// supersede drops the containers that c replaces. A runtime that reports no groups, such as a runtime proxy, reports no
// removals either. A container that the runtime may still start, or write a set of, is kept.
func (s *Service) supersede(c *Container) {
	if c.ID == "" || c.Name == "" {
		return
	}
	now := s.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.containers, func(id string, x *container) bool {
		return id != c.ID && x.uid == c.UID && x.name == c.Name && x.group == "" &&
			!slices.ContainsFunc(x.flights[:], func(f flight) bool { return f.flies(now) }) && len(x.others) == 0
	})
}

// flies reports whether a set is on its way to a group.
func (f flight) flies(now time.Time) bool { return f.cpus != "" && now.Before(f.until) }

// identify completes what the runtime reports of a container with what it reported before.
func (s *Service) identify(c *Container) apply.Container {
	e := engineContainer(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.containers[c.ID]; known != nil && e.Group == "" {
		e.Group, e.PodUID = known.group, known.uid
	}
	return e
}

func engineContainer(c *Container) apply.Container {
	return apply.Container{
		PodUID: c.UID, ID: c.ID, Name: c.Name, Group: groupOf(c.Cgroup), PodGroup: apply.SliceGroup(c.Pod.Cgroup),
	}
}

// podOf translates a sandbox: its cgroup shows the pod's class of Kubernetes.
func podOf(p *Pod) desired.Pod {
	group := apply.SliceGroup(p.Cgroup)
	class := qos.Guaranteed
	switch {
	case strings.Contains(group, "besteffort"):
		class = qos.BestEffort
	case strings.Contains(group, "burstable"):
		class = qos.Burstable
	}
	d := desired.FromSandbox(convert.Sandbox{
		UID: p.UID, Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations, Kube: class,
	})
	d.Cgroup = group
	return d
}

// resources are the rows of one container in the terms of runtimes.
func resources(rows []desired.Row) Resources {
	var r Resources
	for _, row := range rows {
		switch row.File {
		case desired.CPUs:
			r.CPUs = row.Value
		case desired.Mems:
			r.Mems = row.Value
		case desired.QuotaV1, desired.QuotaV2:
			quota, err := strconv.ParseInt(row.Value, 10, 64)
			if err != nil {
				quota = -1 // "max"
			}
			r.Quota = &quota
		}
	}
	return r
}

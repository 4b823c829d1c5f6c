package besteffort

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/suppress"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Options are what a Suppressor needs.
type Options struct {
	Engine *apply.Engine
	Agent  Agent
}

// Agent is what the package asks of the agent of its node. Its methods must not block.
type Agent interface {
	// Writes reports whether the agent decides about cpusets now.
	Writes() bool
	// ReservedMilli returns what is reserved for the system, BatchMilli what the Node shows as batch-cpu, in milli-CPU.
	ReservedMilli() int64
	BatchMilli() int64
	// Evictable returns the pods of the node that the API has; false while they are not all known, or none may be
	// evicted.
	Evictable() ([]*corev1.Pod, bool)
}

// State is what best-effort pods may use. The zero value bounds nothing.
type State struct {
	// Suppressed reports that they may use less than the BE pool.
	Suppressed bool
	// CPUs is how many CPUs they may use, or Quota how many microseconds in a period of 100 ms; the other is 0. Of is
	// the number of CPUs of the BE pool.
	CPUs, Of int
	Quota    int64
	// Use and Limits are what that follows from.
	Use    suppress.Use
	Limits suppress.Limits
	// Instead reports that the NodeSLO asks for a quota, which would bound other pods too, or not all best-effort pods.
	Instead bool
}

// Reason is that of the condition: whether other pods or the strategy alone bound best-effort pods.
func (s State) Reason() string {
	if s.Suppressed && s.Use.NonBE < 50 { // String rounds to 0 CPUs
		return "CPUSuppressThreshold"
	}
	return "OtherPodsUseTheNode"
}

// String says what best-effort pods may use, and why.
func (s State) String() string {
	if !s.Suppressed {
		return "best-effort pods may use the whole BE CPU shared pool"
	}
	what := fmt.Sprintf("%d of %d CPUs", s.CPUs, s.Of)
	if s.Quota > 0 {
		what = fmt.Sprintf("%d ms of CPU time in each 100 ms", s.Quota/1000)
	}
	cpus := func(milli int64) float64 { return float64((milli+50)/100) / 10 }
	text := fmt.Sprintf("best-effort pods are suppressed to %s: other pods use %g CPUs and the system %g of %g, which "+
		"is %d %% of the node's %g", what, cpus(s.Use.NonBE), cpus(max(s.Use.System, s.Use.Reserved)),
		cpus(s.Use.Capacity/100*s.Limits.ThresholdPercent), s.Limits.ThresholdPercent, cpus(s.Use.Capacity))
	if s.Instead {
		text += " (by cpuset: a quota would not bound best-effort pods alone)"
	}
	return text
}

// Suppressor keeps the limit of a node's best-effort pods. It is safe for concurrent use.
type Suppressor struct {
	o       Options
	changed chan struct{} // holds one token once State has changed

	mu       sync.Mutex // guards the fields below; held across calls of the engine, which calls nothing back
	strategy *slo.ResourceThresholdStrategy
	batch    map[string]bool // applications outside of pods that are best-effort
	keeps    bool            // the quota of BestEffort pods was set, or may have been by an earlier agent
	state    State
	order    order
	hosts    int64     // milli-CPU of those applications in the last sample
	sampled  time.Time // of the last sample
	measured time.Time // when what the limit follows from was measured
	moved    time.Time // when that last gave them more or less
}

// order is an order of CPUs with what it was computed from.
type order struct {
	machine   *topo.Machine
	pool, lsr cpuset.Set
	cores     [][]int
}

// New returns a Suppressor that knows no NodeSLO yet. Until Follow is called, best-effort pods keep at most the CPUs
// that they have.
func New(o Options) *Suppressor {
	o.Engine.HoldBE()
	return &Suppressor{o: o, changed: make(chan struct{}, 1)}
}

// Follow takes the node's NodeSLO; nil for none. A field that is not set has its default.
func (s *Suppressor) Follow(object *slo.NodeSLO) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.strategy, s.batch = thresholdsOf(object), map[string]bool{}
	if object != nil {
		s.keeps = true
		for _, h := range object.Spec.HostApplications {
			s.batch[h.Name] = h.QoS == qos.BE.String()
		}
	}
	if s.strategy == nil {
		s.endSuppression()
	}
}

// thresholdsOf returns the thresholds of a NodeSLO; nil where they are not enabled.
func thresholdsOf(object *slo.NodeSLO) *slo.ResourceThresholdStrategy {
	if object == nil {
		return nil
	}
	if t := object.Spec.ResourceUsedThresholdWithBE; t != nil && t.Enable != nil && *t.Enable {
		return t
	}
	return nil
}

// endSuppression lets best-effort pods use the whole pool. The caller holds mu.
func (s *Suppressor) endSuppression() {
	s.o.Engine.LimitBE(desired.Limit{KeepsQuota: s.keeps})
	s.setState(State{})
}

func (s *Suppressor) setState(now State) {
	if before := s.state; now != before {
		s.state = now
		select {
		case s.changed <- struct{}{}:
		default:
		}
	}
}

// Changed has a token once State has changed since the last token.
func (s *Suppressor) Changed() <-chan struct{} { return s.changed }

// State returns what best-effort pods may use now.
func (s *Suppressor) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Tick takes a measurement and sets the limit that follows from it. One that was taken before has no effect.
func (s *Suppressor) Tick(sample *usage.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sample.Time.Equal(s.sampled) {
		return
	}
	s.sampled = sample.Time
	nonBE, hosts := s.sum(sample)
	s.hosts = hosts
	s.limit(sample.Time, suppress.Use{
		Capacity: sample.Capacity.MilliCPU, NonBE: nonBE, System: sample.System.MilliCPU,
		Reserved: s.o.Agent.ReservedMilli(),
	})
}

// Glance takes what is used, in a shorter time than that of a sample, by others than best-effort pods and the system.
// More than in the last sample is a load that has begun; less has no effect before the next sample.
func (s *Suppressor) Glance(at time.Time, milliCPU int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	use := s.state.Use
	if milliCPU -= s.hosts; milliCPU > use.NonBE {
		use.NonBE = milliCPU
		s.limit(at, use)
	}
}

// limit sets the limit that follows from a use. The caller holds mu.
func (s *Suppressor) limit(at time.Time, use suppress.Use) {
	view := s.o.Engine.View()
	s.measured = at
	if s.strategy == nil || view.Machine() == nil || use.Capacity <= 0 || !s.o.Agent.Writes() {
		return
	}
	now := State{
		Limits: suppress.Limits{
			ThresholdPercent: or(s.strategy.CPUSuppressThresholdPercent, defaultThreshold),
			MinPercent:       or(s.strategy.CPUSuppressMinPercent, 0),
		},
		Use: use,
	}
	allowed := now.Use.Allowed(now.Limits)
	pool := view.BEPool()
	now.Of = pool.Len()
	limit := desired.Limit{KeepsQuota: s.keeps}
	asksQuota := s.strategy.CPUSuppressPolicy == slo.CPUCfsQuotaPolicy
	if asksQuota && s.o.Engine.QuotaReachesBE() {
		now.Quota = s.paced(s.state.Quota, suppress.NextQuota(s.state.Quota, allowed, now.Use.Capacity))
		now.Suppressed = now.Quota < int64(now.Of)*100_000
		limit.Quota = now.Quota
	} else {
		before := s.state.CPUs
		if before == 0 {
			before = now.Of
		}
		m := view.Machine()
		online := m.Online()
		n := s.paced(int64(before), int64(suppress.NextCPUs(before, allowed, suppress.Size{
			Usable: now.Of, Total: online.Len(), Threads: m.ThreadsPerCore(),
		})))
		limit.CPUs = suppress.First(s.orderOf(m, pool, view.LSR()), int(n))
		now.CPUs, now.Instead = limit.CPUs.Len(), asksQuota
		now.Suppressed = now.CPUs < now.Of
	}
	s.o.Engine.LimitBE(limit)
	s.setState(now)
}

// growthPace is the least time between a change and growth after it: that between two samples, less what one may be
// early, and more than that between a glance and the next sample.
const growthPace = usage.Interval * 3 / 4

// paced returns the next amount, or before if that is less and the last change too recent. The caller holds mu.
func (s *Suppressor) paced(before, next int64) int64 {
	since := s.measured.Sub(s.moved)
	if before > 0 && next > before && since >= 0 && since < growthPace {
		return before
	}
	if next != before {
		s.moved = s.measured
	}
	return next
}

// or returns the value of a field, or its default.
func or(field *int64, otherwise int64) int64 {
	if field == nil {
		return otherwise
	}
	return *field
}

// defaultThreshold is the default of cpuSuppressThresholdPercent.
const defaultThreshold int64 = 65

// sum returns what pods and applications use that are not best-effort, and what such applications use. A pod that the
// engine does not know is not best-effort.
func (s *Suppressor) sum(sample *usage.Sample) (milli, hosts int64) {
	for uid, used := range sample.Pods {
		if !s.o.Engine.IsBestEffort(uid) {
			milli += used.MilliCPU
		}
	}
	for name, used := range sample.Hosts {
		if s.batch[name] {
			hosts += used.MilliCPU
		} else {
			milli += used.MilliCPU
		}
	}
	return milli, hosts
}

// orderOf returns the order of CPUs, computed anew after a change alone.
func (s *Suppressor) orderOf(m *topo.Machine, pool, lsr cpuset.Set) [][]int {
	if o := &s.order; o.machine != m || o.pool != pool || o.lsr != lsr {
		*o = order{m, pool, lsr, suppress.Order(m, pool, lsr)}
	}
	return s.order.cores
}

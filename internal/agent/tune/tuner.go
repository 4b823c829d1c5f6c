package tune

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/isolate"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// interval is the time between two looks at the machine's files: drivers set interrupts up anew, and irqbalance works
// at about this pace.
const interval = 10 * time.Second

// Pod is a pod that runs on CPUs of its own.
type Pod struct {
	UID string
	// CPUs are kernel ids, sorted.
	CPUs []int
	// Quiet: interrupts are to leave its CPUs.
	Quiet bool
	// AsksCRIO: CRI-O keeps the default affinity and irqbalance off its CPUs, on nodes with that runtime.
	AsksCRIO bool
	// Latency is what the files of the longest time to wake up are to contain; "" leaves them as they are.
	Latency string
}

// Agent is what a Tuner asks of the agent of its node.
type Agent interface {
	// Exclusive returns the pods that run on CPUs of their own; false while not all of them are known.
	Exclusive() ([]Pod, bool)
	// ExclusiveChanged returns a channel that holds a token after Exclusive has come to have another answer.
	ExclusiveChanged() <-chan struct{}
	// Tuned takes what is not as it should be, after each look. It is called without a lock held.
	Tuned(context.Context, []Finding)
	// Machine returns the node's machine.
	Machine() *topo.Machine
	// IsCRIO reports whether the node's container runtime is CRI-O.
	IsCRIO() bool
	// Leaves reports whether the agent leaves the Node.
	Leaves() bool
}

// Options are what a Tuner needs.
type Options struct {
	Root host.Root
	// Files are those below Root when nil.
	Files Files
	Dir   statedir.Dir
	// Boot is the kernel's boot id.
	Boot string
	// Enabled: pods may ask for settings. Otherwise the Tuner only restores what an earlier agent has set.
	Enabled bool
	Agent   Agent
	Clock   clock.WithTicker
}

// Tuner keeps the settings of one machine. It is safe for concurrent use.
type Tuner struct {
	o Options

	mu     sync.Mutex // guards engine
	engine *Engine
}

// NewTuner returns a Tuner that has set nothing yet.
func NewTuner(o Options) *Tuner {
	if o.Files == nil {
		o.Files = Open(o.Root)
	}
	return &Tuner{o: o, engine: New(o.Files, o.Dir, o.Boot, o.Clock)}
}

// Run keeps the settings until ctx ends, and leaves them as they are then: the next agent goes on. It returns nil.
func (t *Tuner) Run(ctx context.Context) error {
	ticker := t.o.Clock.NewTicker(interval)
	defer ticker.Stop()
	for {
		if !t.o.Enabled && t.isIdle() {
			return nil
		}
		t.Look(ctx)
		select {
		case <-t.o.Agent.ExclusiveChanged():
		case <-ticker.C():
		case <-ctx.Done():
			return nil
		}
	}
}

func (t *Tuner) isIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.engine.IsIdle()
}

// Look makes the machine's files what they should be now. While not all pods are known it does nothing.
func (t *Tuner) Look(ctx context.Context) {
	pods, known := t.o.Agent.Exclusive()
	if t.o.Agent.Leaves() || !t.o.Enabled {
		pods, known = nil, true
	}
	if !known {
		return
	}
	t.mu.Lock()
	findings := t.engine.Reconcile(t.settings(pods))
	if len(pods) > 0 {
		findings = append(findings, t.withoutEffect(pods)...)
	}
	t.mu.Unlock()
	t.o.Agent.Tuned(ctx, findings)
}

// Restore gives all files their original values, and returns those that do not have them yet.
func (t *Tuner) Restore() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.engine.IsIdle() {
		return nil
	}
	t.engine.Reconcile(nil)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(t.engine.records)), func(file string) bool { return file == Bans })
}

// settings returns what pods ask for.
func (t *Tuner) settings(pods []Pod) []Setting {
	s := t.steering(pods)
	if len(s.Quiet) == 0 {
		return limitSleep(pods)
	}
	inCRIO := t.o.Agent.IsCRIO() && slices.ContainsFunc(pods, func(p Pod) bool { return p.AsksCRIO })
	return append(steer(t.o.Root, t.o.Files, s, !inCRIO), limitSleep(pods)...)
}

// steering returns where interrupts may fire beside pods.
func (t *Tuner) steering(pods []Pod) *isolate.Steering {
	m := t.o.Agent.Machine()
	s := &isolate.Steering{
		Online: idsOf(m, m.Online()), BootIsolated: idsOf(m, m.Isolated()), Nodes: map[int][]int{},
	}
	for _, p := range pods {
		if p.Quiet {
			s.Quiet = append(s.Quiet, p.CPUs...)
		}
	}
	slices.Sort(s.Quiet)
	s.Quiet = slices.Compact(s.Quiet)
	for n := range topo.NUMA(m.NumNUMA()) {
		s.Nodes[m.NUMAID(n)] = idsOf(m, m.NUMACPUs(n))
	}
	return s
}

// idsOf returns the kernel's ids of CPUs.
func idsOf(m *topo.Machine, s cpuset.Set) []int {
	var out []int
	for cpu := range s.All() {
		out = append(out, m.CPUID(topo.CPU(cpu)))
	}
	slices.Sort(out)
	return out
}

// withoutEffect returns what pods ask for in vain, whatever the files say.
func (t *Tuner) withoutEffect(pods []Pod) (out []Finding) {
	quiet := slices.ContainsFunc(pods, func(p Pod) bool { return p.Quiet })
	if quiet && len(t.steering(pods).Housekeeping()) == 0 {
		out = append(out, Finding{Failed, interrupts, "no CPU would be left for interrupts: they are not moved"})
	}
	if _, err := balancer(t.o.Root); quiet && err != nil && host.Runs(t.o.Root, "irqbalance") {
		out = append(out, Finding{
			Foreign, Bans,
			"irqbalance runs without a socket: ban the CPUs of exclusive pods in its IRQBALANCE_BANNED_CPULIST",
		})
	}
	limits := slices.ContainsFunc(pods, func(p Pod) bool { return p.Latency != "" })
	if limits && cannotSleep(t.o.Files) {
		out = append(out, Finding{
			Fixed, "sys/devices/system/cpu/cpuidle",
			"no driver lets CPUs sleep deeply: a limit of the time to wake up has no effect",
		})
	}
	return out
}

// Describe joins Findings of some kinds to one text, shortened to the first ones; "" for none.
func Describe(findings []Finding, kinds ...Kind) string {
	const most = 5
	var texts []string
	for _, f := range findings {
		if slices.Contains(kinds, f.Kind) {
			texts = append(texts, "/"+f.File+": "+f.Text)
		}
	}
	if more := len(texts) - most; more > 0 {
		texts = append(texts[:most], fmt.Sprintf("and %d more files", more))
	}
	return strings.Join(texts, "; ")
}

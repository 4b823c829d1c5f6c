package app

import (
	"context"
	gojson "encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// settings are how the node's kubelet handles CPUs, memory and topology, and how that is known. What is asked for by
// flag counts before what the kubelet says, that before what it said last, and that before what its files show.
type settings struct {
	// config is the last answer of the kubelet, of this agent or an earlier one. Its Kubelet is that of the flag where
	// the kubelet is not asked.
	config kubeletapi.Config
	source settingsSource
	// inForce is config.Kubelet with the CPUs that the static policy keeps for itself.
	inForce host.Kubelet
	// settled is the source of inForce.
	settled settingsSource
	// asked is what of the Node says that another kubelet may run since; "" before the first answer.
	asked string
	pace  pace
}

// settingsSource says where settings come from.
type settingsSource uint8

const (
	fromDefault settingsSource = iota
	fromFiles                  // what the kubelet's state files show: the policies alone
	fromKept                   // what the kubelet said to an earlier agent
	fromKubelet
	fromFlag
)

// String ends the sentence "what counts are …".
func (s settingsSource) String() string {
	return [...]string{
		"the policies none", "the policies that its state files show",
		"the settings that it reported to an earlier agent", "the settings that it reported last",
		"the settings of the flag --kubelet",
	}[s]
}

// ErrCgroupRoot is returned by Run when the kubelet keeps its pods below another cgroup than the agent works on. The
// agent must restart to use the right one.
var ErrCgroupRoot = errors.New("the kubelet keeps its pods below another cgroup")

// configFile keeps the kubelet's last answer below the Root: an agent that starts while the kubelet is down goes by it.
const configFile = "var/lib/tenon-agent/kubelet.json"

// begin returns the settings before the kubelet was asked.
func begin(o *Options) settings {
	if o.AskKubelet == nil {
		return settings{
			source: fromFlag, config: kubeletapi.Config{Kubelet: o.Kubelet}, inForce: o.Kubelet,
			settled: fromFlag,
		}
	}
	s := settings{source: fromKept}
	var known bool
	s.config, known = keptConfig(o.Root)
	if o.CgroupRoot == "" && len(o.CgroupRoots) == 0 {
		o.CgroupRoot, o.guessesRoot = s.config.CgroupRoot, true
	}
	if !known {
		s.config.Kubelet, known = shown(o.Root)
		s.source = fromDefault
		if known {
			s.source = fromFiles
		}
	}
	s.inForce, s.settled = s.config.Kubelet, s.source
	if s.inForce.CPUPolicy != annotation.KubeletPolicyStatic {
		s.inForce.ReservedCPUs = ""
	}
	return s
}

// shown returns the policies that the kubelet's files name: a static kubelet that is taken for none would lose its
// pods' CPUs to others.
func shown(root host.Root) (host.Kubelet, bool) {
	var k host.Kubelet
	if cpu, err := host.ReadCPUState(root); err == nil && cpu.Policy == annotation.KubeletPolicyStatic {
		k.CPUPolicy = cpu.Policy
	}
	if memory, err := host.ReadMemoryState(root); err == nil && memory.Policy == annotation.KubeletMemoryStatic {
		k.MemoryPolicy = memory.Policy
	}
	return k, k.CPUPolicy != "" || k.MemoryPolicy != ""
}

// keptConfig returns what was kept; false when nothing that can be read was.
func keptConfig(root host.Root) (kubeletapi.Config, bool) {
	text, err := os.ReadFile(root.Path(configFile))
	if err != nil {
		return kubeletapi.Config{}, false
	}
	var c kubeletapi.Config
	if err := gojson.Unmarshal(text, &c); err != nil || c.Kubelet.CPUPolicy == "" {
		return kubeletapi.Config{}, false
	}
	return c, true
}

func keepConfig(root host.Root, c kubeletapi.Config) error {
	text, err := gojson.Marshal(c)
	if err == nil {
		err = keepFile(root.Path(configFile), string(text))
	}
	if err != nil {
		return fmt.Errorf("keep the kubelet's settings: %w", err)
	}
	return nil
}

// kubelet returns the settings in force.
func (a *Agent) kubelet() host.Kubelet {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.settings.inForce
}

// readSettings asks the kubelet for its settings when that is due. A failure leaves the last good ones in force and is
// a condition.
func (a *Agent) readSettings(ctx context.Context) error {
	node := a.currentNode()
	if a.o.AskKubelet == nil || !a.o.Switches.QueryKubelet || node == nil {
		return nil
	}
	now, of := a.o.Clock.Now(), runOf(node)
	a.mu.Lock()
	s := &a.settings
	due := s.pace.due(now) || s.asked != "" && s.asked != of && s.pace.failures == 0
	a.mu.Unlock()
	if !due {
		return nil
	}
	config, err := a.o.AskKubelet(ctx, node)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the agent ends: not the kubelet's fault
	}
	a.mu.Lock()
	s.asked = of
	if err == nil {
		s.config, s.source = config, fromKubelet
		s.pace.answered(a.o.Clock.Now(), a.o.Resync)
	} else {
		s.pace.failed(a.o.Clock.Now())
	}
	source := s.source
	a.mu.Unlock()
	set := a.status.Source("settings")
	if err != nil {
		return errors.Join(err, set(ctx, status.SourceDegraded, true, "KubeletSettingsUnknown",
			err.Error()+": what counts are "+source.String()))
	}
	return errors.Join(keepConfig(a.o.Root, config),
		set(ctx, status.SourceDegraded, false, "Usable", "the kubelet reports its settings"))
}

// runOf names what changes when another kubelet may run on the node.
func runOf(node *corev1.Node) string {
	i := node.Status.NodeInfo
	return strings.Join([]string{i.KubeletVersion, i.BootID, string(node.UID)}, " ")
}

// settle puts in force what is known of the kubelet.
func (a *Agent) settle(ctx context.Context) {
	a.mu.Lock()
	s, m, cpus := &a.settings, a.machine, a.resources.cpus
	next, note := withReserved(s.config, a.versionLocked(), m, cpus)
	old := s.inForce
	changed := !reflect.DeepEqual(old, next)
	s.inForce = next
	source, before := s.source, s.settled
	s.settled = source
	a.mu.Unlock()
	if !changed {
		return
	}
	log := klog.FromContext(ctx)
	if note != "" {
		log.Info("The CPUs that the kubelet keeps for itself are not known", "node", a.o.Node, "note", note)
	}
	if err := next.Runs(m); err != nil {
		log.Info("A kubelet with these settings would not start here", "node", a.o.Node, "note", err.Error())
	}
	a.engine.KubeletKeepsMemory(keepsMemory(next))
	if policies(old) != policies(next) {
		log.Info("The kubelet's settings", "node", a.o.Node, "were", policies(old), "are", policies(next), "source",
			source.String())
		was, is := old, next
		was.ReservedCPUs, is.ReservedCPUs = "", "" // known by and by
		if (before == fromKubelet || before == fromKept) && policies(was) != policies(is) {
			a.status.Event("KubeletSettingsChanged", "the kubelet's settings are %s, they were %s", policies(next),
				policies(old))
		}
	}
	a.publish()
}

// versionLocked is the kubelet's version; the caller holds mu.
func (a *Agent) versionLocked() string {
	if v := a.settings.config.Kubelet.Version; v != "" || a.node == nil {
		return v
	}
	return a.node.Status.NodeInfo.KubeletVersion
}

func keepsMemory(k host.Kubelet) bool { return k.MemoryPolicy != "" && k.MemoryPolicy != "None" }

// policies are the words that an operator would look at.
func policies(k host.Kubelet) string {
	words := []string{
		"cpuManagerPolicy " + orNone(k.CPUPolicy, "none"), "memoryManagerPolicy " + orNone(k.MemoryPolicy, "None"),
		"topologyManagerPolicy " + orNone(k.TopologyPolicy, "none"),
	}
	if k.ReservedCPUs != "" {
		words = append(words, "reserved CPUs "+k.ReservedCPUs)
	}
	return strings.Join(words, ", ")
}

func orNone(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// withReserved returns the settings with the CPUs that a static kubelet keeps for itself: all that it does not say it
// may give, else reservedSystemCPUs, else as many as it would choose. note says why none of them is known.
func withReserved(c kubeletapi.Config, version string, m *topo.Machine, allocatable []int) (k host.Kubelet,
	note string,
) {
	k = c.Kubelet
	if k.CPUPolicy != annotation.KubeletPolicyStatic {
		k.ReservedCPUs = "" // without the static policy no pod is kept off them
		return k, ""
	}
	if len(allocatable) > 0 {
		if given, unknown, err := m.ParseList(cpuset.FormatIDs(allocatable)); err == nil && len(unknown) == 0 {
			k.ReservedCPUs = m.FormatList(m.Online().Minus(given))
			return k, ""
		}
	}
	if k.ReservedCPUs != "" || c.ReservedMilliCPU == 0 {
		return k, ""
	}
	model, _ := kubelet.ModelOf(version)
	set, ok := kubelet.ReservedCPUs(m, kubelet.Config{Model: model, CPU: kubelet.StaticCPU(k.CPUOptions)},
		c.ReservedMilliCPU)
	if !ok {
		return k, fmt.Sprintf("a reservation of %d milli-CPU cannot be met on this machine", c.ReservedMilliCPU)
	}
	k.ReservedCPUs = m.FormatList(set)
	return k, ""
}

// misplaced returns ErrCgroupRoot when the kubelet's pods are below another cgroup than the agent's.
func (a *Agent) misplaced() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	is, used := path.Clean("/"+a.settings.config.CgroupRoot), path.Clean("/"+a.o.CgroupRoot)
	if a.settings.source != fromKubelet || !a.o.guessesRoot || is == used {
		return nil
	}
	return fmt.Errorf("%w: %s, and not %s", ErrCgroupRoot, is, used)
}

// forgetFile removes a file that may be missing.
func forgetFile(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pace says when a source is asked: at once when something points at a change, at every resync, and after failures with
// growing pauses.
type pace struct {
	next     time.Time
	last     time.Time
	failures int
	hinted   bool
}

const (
	firstPause = time.Second
	lastPause  = 2 * time.Minute
	// leastInterval is the time between two questions, whatever happens.
	leastInterval = kubeletapi.Interval
)

// hint asks for a question as soon as one may be asked. It does not shorten the pause after a failure to nothing: the
// next question is the first of a new series.
func (p *pace) hint() {
	p.hinted, p.failures = true, 0
}

// want is hint for a change that says nothing about whether the source answers again.
func (p *pace) want() {
	if p.failures == 0 {
		p.hinted = true
	}
}

func (p *pace) due(now time.Time) bool {
	if now.Before(p.last.Add(leastInterval)) {
		return false
	}
	return p.hinted || !now.Before(p.next)
}

// wait is how long until a question that is wanted may be asked; false when none is wanted before the next resync.
func (p *pace) wait(now time.Time) (time.Duration, bool) {
	switch {
	case p.hinted:
		return max(0, p.last.Add(leastInterval).Sub(now)), true
	case p.failures > 0:
		return max(0, p.next.Sub(now)), true
	}
	return 0, false
}

func (p *pace) answered(now time.Time, resync time.Duration) {
	*p = pace{last: now, next: now.Add(resync)}
}

func (p *pace) failed(now time.Time) {
	pause := min(firstPause<<min(p.failures, 10), lastPause)
	*p = pace{last: now, next: now.Add(pause), failures: p.failures + 1}
}

package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/kubeletapi"
	"github.com/tenon-project/tenon/internal/agent/statedir"
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

// configFile keeps the kubelet's last answer: an agent that starts while the kubelet is down goes by it.
const configFile = "kubelet.json"

func begin(o *Options) settings {
	if o.AskSettings == nil {
		return settings{source: fromFlag, config: kubeletapi.Config{Kubelet: o.Settings}}
	}
	if config, ok := kept(o.Root); ok {
		return settings{config, fromKept}
	}
	if k, ok := shown(o.Root); ok {
		return settings{kubeletapi.Config{Kubelet: k}, fromFiles}
	}
	return settings{source: fromDefault}
}

// Known returns the settings of a kubelet by the files of its machine, and a sentence that says how they are known:
// those that it reported to an agent, else the policies of its records. It is "" where nothing is known.
func Known(root host.Root, m *topo.Machine) (k annotation.Kubelet, note string) {
	if config, ok := kept(root); ok {
		k, _ := withReserved(config, config.Kubelet.Version, m, nil)
		return k, fromKept.String()
	}
	if k, ok := shown(root); ok {
		return k, fromFiles.String()
	}
	return annotation.Kubelet{}, ""
}

// shown returns the policies that the kubelet's files name: a static kubelet that is taken for none would lose its
// pods' CPUs to others.
func shown(root host.Root) (annotation.Kubelet, bool) {
	var k annotation.Kubelet
	if cpu, err := host.ReadCPUState(root); err == nil && cpu.Policy == annotation.KubeletPolicyStatic {
		k.CPU.Policy = cpu.Policy
	}
	if memory, err := host.ReadMemoryState(root); err == nil && memory.Policy == annotation.KubeletMemoryStatic {
		k.Memory.Policy = memory.Policy
	}
	return k, k.CPU.Policy != "" || k.Memory.Policy != ""
}

// kept returns what was kept of the last answer; false when nothing that can be read was.
func kept(root host.Root) (c kubeletapi.Config, known bool) {
	if found, err := statedir.Of(root).Load(configFile, &c); err != nil || !found || c.Kubelet.CPU.Policy == "" {
		return kubeletapi.Config{}, false
	}
	return c, true
}

// readSettings asks the kubelet for its settings when that is due, or another kubelet may run.
func (b *Observer) readSettings(ctx context.Context) error {
	node := b.o.Agent.CurrentNode()
	if b.o.AskSettings == nil || !b.o.Switches.QueryKubelet || node == nil {
		return nil
	}
	run := runOf(node)
	if b.asked != "" && b.asked != run {
		b.settings.Want()
	}
	var keeping error
	err := b.settings.Refresh(ctx, func(last settings) (settings, error) {
		b.asked = run
		config, err := b.o.AskSettings.Config(ctx, node)
		if err != nil {
			return last, err
		}
		keeping = b.dir.Save(configFile, config)
		return settings{config, fromKubelet}, nil
	})
	return errors.Join(keeping, err)
}

// runOf names what changes when another kubelet may run on the node.
func runOf(node *corev1.Node) string {
	i := node.Status.NodeInfo
	return strings.Join([]string{i.KubeletVersion, i.BootID, string(node.UID)}, " ")
}

func (b *Observer) adoptSettings(ctx context.Context, state *State) {
	known, m := b.settings.Value(), b.o.Agent.Machine()
	next, note := withReserved(known.config, b.version(), m, b.resources.Value().cpus)
	old, before := state.Settings, b.settled
	state.Settings, b.settled = next, known.source
	if equality.Semantic.DeepEqual(old, next) {
		return
	}
	log := klog.FromContext(ctx)
	if note != "" {
		log.Info("The CPUs that the kubelet keeps for itself are not known", "node", b.o.Node, "note", note)
	}
	if err := host.CheckKubelet(&next, m); err != nil {
		log.Info("A kubelet with these settings would not start here", "node", b.o.Node, "note", err.Error())
	}
	if policies(old) == policies(next) {
		return
	}
	log.Info("The kubelet's settings", "node", b.o.Node, "were", policies(old), "are", policies(next), "source",
		known.source.String())
	oldPolicies, newPolicies := old, next
	oldPolicies.CPU.Reserved, newPolicies.CPU.Reserved = "", "" // known by and by
	if (before == fromKubelet || before == fromKept) && policies(oldPolicies) != policies(newPolicies) {
		b.o.Status.Event(event.KubeletSettingsChanged, "the kubelet's settings are %s, they were %s", policies(next),
			policies(old))
	}
}

// reportAssumed keeps the condition KubeletAssumed: what the scheduler's predictions take for granted of this kubelet.
// A kubelet whose managers are off is not predicted.
func (b *Observer) reportAssumed(ctx context.Context, state *State) error {
	if b.o.Agent.CurrentNode() == nil {
		return nil
	}
	k := state.Settings
	var assumed []string
	if state.IsStatic() || state.KeepsMemory() ||
		cmp.Or(k.Topology.Policy, annotation.KubeletTopologyNone) != annotation.KubeletTopologyNone {
		s := kubelet.Settings{
			Version: b.version(), CPUOptions: k.CPU.Options, TopologyOptions: k.Topology.Options, Gates: k.Gates,
		}
		assumed = s.Assumptions()
	}
	if len(assumed) == 0 {
		return b.o.Status.Set(ctx, event.KubeletAssumed, false, "Known", "the scheduler's model supports this kubelet")
	}
	return b.o.Status.Set(ctx, event.KubeletAssumed, true, "NotInTheModel", strings.Join(assumed, "; "))
}

// version is the kubelet's: of its settings, else of the Node.
func (b *Observer) version() string {
	version := b.settings.Value().config.Kubelet.Version
	if node := b.o.Agent.CurrentNode(); version == "" && node != nil {
		version = node.Status.NodeInfo.KubeletVersion
	}
	return version
}

func policies(k annotation.Kubelet) string {
	words := []string{
		"cpuManagerPolicy " + cmp.Or(k.CPU.Policy, "none"), "memoryManagerPolicy " + cmp.Or(k.Memory.Policy, "None"),
		"topologyManagerPolicy " + cmp.Or(k.Topology.Policy, "none"),
	}
	if k.CPU.Reserved != "" {
		words = append(words, "reserved CPUs "+k.CPU.Reserved)
	}
	return strings.Join(words, ", ")
}

// withReserved returns the settings with the CPUs that a static kubelet keeps for itself: all that it does not say it
// may give, else reservedSystemCPUs, else as many as it would choose. note says why none of them is known.
func withReserved(c kubeletapi.Config, version string, m *topo.Machine, allocatable []int) (k annotation.Kubelet,
	note string,
) {
	k = c.Kubelet
	if k.CPU.Policy != annotation.KubeletPolicyStatic {
		k.CPU.Reserved = "" // without the static policy no pod is kept off them
		return k, ""
	}
	if len(allocatable) > 0 {
		if given, unknown, err := m.ParseList(cpuset.FormatIDs(allocatable)); err == nil && len(unknown) == 0 {
			k.CPU.Reserved = m.FormatList(m.Online().Minus(given))
			return k, ""
		}
	}
	if k.CPU.Reserved != "" || c.ReservedMilliCPU == 0 {
		return k, ""
	}
	known, _ := kubelet.ModelOf(version)
	set, ok := kubelet.ReservedCPUs(m, kubelet.Config{Model: known, CPU: kubelet.StaticCPU(k.CPU.Options)},
		c.ReservedMilliCPU)
	if !ok {
		return k, fmt.Sprintf("a reservation of %d milli-CPU cannot be met on this machine", c.ReservedMilliCPU)
	}
	k.CPU.Reserved = m.FormatList(set)
	return k, ""
}

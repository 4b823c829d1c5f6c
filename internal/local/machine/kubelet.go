package machine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
)

const follow = "follow"

// ManagersMinor is the release of Kubernetes 1 whose kubelet managers simulated nodes run.
const ManagersMinor = 37

// complete adds the CPU policy that a list of settings implies: a topology policy aligns nothing, and there is nothing
// to follow, where the kubelet pins no CPU. Who wants the one without the other says none.
func complete(words []string) []string {
	said := func(options ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(options, w) })
	}
	implied := said(follow, annotation.KubeletTopologyBestEffort, annotation.KubeletTopologyRestricted,
		annotation.KubeletTopologySingleNUMA)
	if !implied || said(annotation.KubeletPolicyNone, annotation.KubeletPolicyStatic) {
		return words
	}
	return append(words, annotation.KubeletPolicyStatic)
}

func (d Description) runsManagers() bool {
	k := d.Kubelet
	return d.pins() || d.keepsMemory() || k.Topology.Policy != "" && k.Topology.Policy != annotation.KubeletTopologyNone
}

func (d Description) pins() bool { return d.Kubelet.CPU.Policy == annotation.KubeletPolicyStatic }

func (d Description) keepsMemory() bool {
	return d.Kubelet.Memory.Policy == annotation.KubeletMemoryStatic
}

// applyDefaults fills the kubelet settings that depend on the machine, since a kubelet refuses to start without them:
// with the static policy the first core is reserved, with the memory manager 1 GiB of the first NUMA node that has
// twice as much.
func (d *Description) applyDefaults(m *topo.Machine) {
	if d.pins() && d.Kubelet.CPU.Reserved == "" {
		online := m.Online()
		first := m.CoreOf(topo.CPU(online.Slice()[0]))
		var ids []int
		for _, c := range m.CoreCPUs(first) {
			if online.Has(int(c)) {
				ids = append(ids, m.CPUID(c))
			}
		}
		d.Kubelet.CPU.Reserved = cpuset.FormatIDs(ids)
	}
	if d.keepsMemory() && len(d.Kubelet.Memory.Reserved) == 0 {
		if node, bytes := spareMemory(m); bytes > 0 {
			d.Kubelet.Memory.Reserved = map[int32]corev1.ResourceList{
				int32(node): {corev1.ResourceMemory: *resource.NewQuantity(bytes, resource.BinarySI)},
			}
		}
	}
}

// spareMemory returns the default reservation: the NUMA node's id and an amount in bytes, 0 when the machine shows no
// memory.
func spareMemory(m *topo.Machine) (node int, bytes int64) {
	for i := range m.NumNUMA() {
		n := topo.NUMA(i)
		free := m.MemoryBytes(n) - hugeBytes(m, n)
		if amount := min(gib, free/2); amount > bytes {
			node, bytes = m.NUMAID(n), amount
		}
	}
	return node, bytes
}

func hugeBytes(m *topo.Machine, n topo.NUMA) int64 {
	sum := int64(0)
	for size, pages := range m.Hugepages(n) {
		sum += size * pages
	}
	return sum
}

// check refuses what the simulated kubelet cannot be: settings with which a kubelet would not start on the machine,
// would panic or would never answer, and a release whose managers are not at hand.
func (d Description) check(m *topo.Machine) error {
	if d.Follow && !d.pins() {
		return fmt.Errorf("%s needs the CPU policy static: a kubelet that pins nothing cannot be followed", follow)
	}
	if !d.runsManagers() {
		return nil
	}
	if err := host.CheckKubelet(&d.Kubelet, m); err != nil {
		return err
	}
	for _, rule := range []func(*topo.Machine) error{d.checkVersion, d.checkMemory, d.checkIDs, d.checkHang} {
		if err := rule(m); err != nil {
			return err
		}
	}
	return nil
}

func (d Description) checkVersion(*topo.Machine) error {
	if d.Kubelet.Version == "" {
		return nil
	}
	if v, err := version.ParseSemantic(d.Kubelet.Version); err != nil || v.Minor() != ManagersMinor {
		return fmt.Errorf("version=%s: a simulated kubelet that decides about CPUs, memory or topology runs the "+
			"managers of Kubernetes 1.%d: leave version= out, or those policies", d.Kubelet.Version, ManagersMinor)
	}
	return nil
}

func (d Description) checkMemory(m *topo.Machine) error {
	if !d.keepsMemory() {
		return nil
	}
	reserved := int64(0)
	for id, types := range d.Kubelet.Memory.Reserved {
		memory := types.Memory().Value()
		reserved += memory
		n, _ := m.NUMAByID(int(id)) // CheckKubelet has looked for it
		total := hugeBytes(m, n) + memory
		if total > m.MemoryBytes(n) {
			return fmt.Errorf("reserved-memory: NUMA node %d has %d bytes, its huge pages and what is reserved take %d",
				id, m.MemoryBytes(n), total)
		}
	}
	if reserved == 0 {
		return errors.New(
			"memory-static: a kubelet starts only with memory reserved for the system, such as reserved-memory=0:1Gi")
	}
	return nil
}

// checkIDs refuses ids with which the kubelet's own code breaks: masks have 64 bits, and tables of distances are read
// with ids as their indices.
func (d Description) checkIDs(m *topo.Machine) error {
	k := d.Kubelet
	if k.Topology.Policy == annotation.KubeletTopologyNone {
		return nil
	}
	highest := m.NUMAID(topo.NUMA(m.NumNUMA() - 1))
	if highest >= 64 {
		return fmt.Errorf("topology policy %s: the kubelet panics on the NUMA node id %d, its masks end at 63",
			k.Topology.Policy, highest)
	}
	byDistance := k.Topology.Options["prefer-closest-numa-nodes"] == "true" &&
		k.Topology.Policy != annotation.KubeletTopologySingleNUMA
	if byDistance && highest >= m.NumNUMA() {
		return fmt.Errorf("prefer-closest-numa-nodes: the kubelet panics on the NUMA node id %d of %d nodes, it takes "+
			"ids for positions", highest, m.NumNUMA())
	}
	return nil
}

// checkHang refuses the settings with which the kubelet's CPU manager never returns from some requests (kubernetes PR
// 140730): it deals whole cores round robin to NUMA nodes of which none has one left, only single threads.
func (d Description) checkHang(m *topo.Machine) error {
	o := d.Kubelet.CPU.Options
	if o["distribute-cpus-across-numa"] != "true" || o["full-pcpus-only"] != "true" || len(m.CPUNodes()) < 2 {
		return nil
	}
	reserved, _, err := m.ParseList(d.Kubelet.CPU.Reserved)
	if err != nil {
		return err
	}
	for c := range m.NumCores() {
		core := m.CoreCPUs(topo.Core(c))
		taken := slices.DeleteFunc(slices.Clone(core), func(cpu topo.CPU) bool { return !reserved.Has(int(cpu)) })
		if len(taken) > 0 && len(taken) < len(core) {
			return fmt.Errorf("distribute-cpus-across-numa with full-pcpus-only: reserved=%s splits a core, and then "+
				"the kubelet's CPU manager never returns from some requests: reserve whole cores",
				d.Kubelet.CPU.Reserved)
		}
	}
	return nil
}

// hugepagePrefix begins a setting of the machine: hugepages-2Mi=AMOUNT, the amount of every NUMA node.
const hugepagePrefix = "hugepages-"

func isHugepageKey(text string) bool {
	return strings.HasPrefix(text, hugepagePrefix) && !strings.Contains(text, "=")
}

func (d *Description) takeHugepages(words []string) (rest []string, err error) {
	sizes := map[string]int64{"2Mi": 2 << 20, "1Gi": gib}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if !isHugepageKey(key) {
			rest = append(rest, word)
			continue
		}
		if d.topology != nil {
			return nil, fmt.Errorf("%s: the machine has the huge pages of its capture", word)
		}
		size, ok := sizes[strings.TrimPrefix(key, hugepagePrefix)]
		if !ok {
			return nil, fmt.Errorf("%s: Unsupported page size: supported %s", word,
				strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))
		}
		amount, err := annotation.ParseQuantity(value)
		if err != nil || amount.Sign() < 0 || amount.Value()%size != 0 {
			return nil, fmt.Errorf("%s: the amount must be a multiple of the page size, such as %s=4Gi", word, key)
		}
		d.shape.Hugepages = maps.Clone(d.shape.Hugepages)
		if d.shape.Hugepages == nil {
			d.shape.Hugepages = map[int64]int64{}
		}
		d.shape.Hugepages[size] = amount.Value() / size
	}
	return rest, d.checkHugepages()
}

func (d *Description) checkHugepages() error {
	m, err := d.Topology()
	if err != nil {
		return err
	}
	for i := range m.NumNUMA() {
		n := topo.NUMA(i)
		if huge := hugeBytes(m, n); huge > m.MemoryBytes(n) {
			return fmt.Errorf("NUMA node %d has %d bytes of memory, its huge pages take %d", m.NUMAID(n),
				m.MemoryBytes(n), huge)
		}
	}
	return nil
}

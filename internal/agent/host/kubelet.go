package host

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tenon-project/tenon/internal/core/topo"
)

// Kubelet is how the kubelet of a node handles CPUs, memory and topology. Values are spelled as in its configuration.
// The zero value is a kubelet with the policies none.
type Kubelet struct {
	// Version is status.nodeInfo.kubeletVersion, such as "v1.36.3"; "" where the settings do not say: the Node counts.
	Version string
	// CPUPolicy is "none" or "static"; "" counts as "none".
	CPUPolicy string
	// CPUOptions are cpuManagerPolicyOptions, such as full-pcpus-only: "true".
	CPUOptions map[string]string
	// ReservedCPUs is reservedSystemCPUs in list format.
	ReservedCPUs string
	// MemoryPolicy is "None" or "Static"; "" counts as "None".
	MemoryPolicy string
	// ReservedMemory is reservedMemory: bytes by NUMA node and type ("memory", "hugepages-2Mi").
	ReservedMemory map[int]map[string]int64
	// TopologyPolicy is "none", "best-effort", "restricted" or "single-numa-node"; "" counts as "none".
	TopologyPolicy string
	// TopologyScope is "container" or "pod"; "" counts as "container".
	TopologyScope string
	// TopologyOptions are topologyManagerPolicyOptions, such as prefer-closest-numa-nodes: "true".
	TopologyOptions map[string]string
	// Gates are the feature gates that differ from the defaults of Version.
	Gates map[string]bool
}

// The kubelet's values that code asks for.
const (
	policyNone, policyStatic = "none", "static"
	memoryNone, memoryStatic = "None", "Static"
	singleNUMANode           = "single-numa-node"
	scopeContainer, scopePod = "container", "pod"
)

// Options of the CPU manager and of the Topology Manager that have rules of their own.
const (
	fullPCPUsOnly    = "full-pcpus-only"
	acrossNUMA       = "distribute-cpus-across-numa"
	alignBySocket    = "align-by-socket"
	acrossCores      = "distribute-cpus-across-cores"
	alignL3          = "prefer-align-cpus-by-uncorecache"
	strictReserve    = "strict-cpu-reservation"
	preferClosest    = "prefer-closest-numa-nodes"
	maxAllowableNUMA = "max-allowable-numa-nodes"
)

// defaultMaxNUMA is the least and the default value of max-allowable-numa-nodes.
const defaultMaxNUMA = 8

func cpuOptions() []string {
	return []string{fullPCPUsOnly, acrossNUMA, alignBySocket, acrossCores, alignL3, strictReserve}
}

func topologyPolicies() []string { return []string{"best-effort", "restricted", singleNUMANode} }

// ParseKubelet reads settings separated by commas:
//
//	none | static                          the CPU manager's policy, and its options, each a word of its own
//	reserved=LIST                          reservedSystemCPUs; the list may have commas of its own
//	memory-static                          the memory manager's policy Static
//	reserved-memory=NODE[:TYPE]:AMOUNT,…   reservedMemory, such as 0:1Gi,1:hugepages-2Mi:64Mi
//	best-effort | restricted | single-numa-node
//	scope=container | scope=pod, for short pod-scope
//	prefer-closest-numa-nodes, max-allowable-numa-nodes=N
//	version=1.36 | version=v1.36.3
//
// "" is a kubelet with the policies none. A word that is none of them is an *UnknownSetting; settings under which a
// kubelet would not start, or that it would not read, are refused.
func ParseKubelet(settings string) (Kubelet, error) {
	k := Kubelet{
		CPUPolicy: policyNone, MemoryPolicy: memoryNone, TopologyPolicy: policyNone,
		TopologyScope: scopeContainer,
	}
	if settings == "" {
		return k, nil
	}
	r := settingReader{kubelet: &k, said: map[string]string{}}
	for _, setting := range splitSettings(settings) {
		if err := r.read(setting); err != nil {
			return k, err
		}
	}
	if err := k.contradiction(); err != nil {
		return k, fmt.Errorf("kubelet settings %q: %w", settings, err)
	}
	k.openGates()
	return k, nil
}

// contradiction returns why a kubelet would not start with these settings, or would not read some of them.
func (k *Kubelet) contradiction() error {
	switch {
	case k.CPUPolicy != policyStatic && (len(k.CPUOptions) > 0 || k.ReservedCPUs != ""):
		return fmt.Errorf("CPU manager options and reserved= need the CPU policy %s", policyStatic)
	case k.MemoryPolicy != memoryStatic && len(k.ReservedMemory) > 0:
		return fmt.Errorf("reserved-memory= needs memory-static")
	case k.TopologyPolicy == policyNone && (len(k.TopologyOptions) > 0 || k.TopologyScope == scopePod):
		return fmt.Errorf("the scope pod and Topology Manager options need one of the topology policies %s",
			strings.Join(topologyPolicies(), ", "))
	case k.CPUOptions[alignBySocket] != "" && k.TopologyPolicy == singleNUMANode:
		return fmt.Errorf("%s cannot be combined with the topology policy %s", alignBySocket, singleNUMANode)
	}
	for _, pair := range [][2]string{
		{fullPCPUsOnly, acrossCores}, {acrossNUMA, acrossCores}, {alignL3, acrossCores}, {alignL3, acrossNUMA},
	} {
		if k.CPUOptions[pair[0]] != "" && k.CPUOptions[pair[1]] != "" {
			return fmt.Errorf("%s cannot be combined with %s", pair[0], pair[1])
		}
	}
	return nil
}

// openGates adds the feature gate without which the kubelet refuses options that are alpha in its version.
func (k *Kubelet) openGates() {
	alpha := k.CPUOptions[alignBySocket] != "" || k.CPUOptions[acrossCores] != ""
	if v, err := version.ParseSemantic(k.Version); err == nil && v.Minor() <= 33 {
		alpha = alpha || k.CPUOptions[alignL3] != ""
	}
	if alpha {
		k.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
	}
}

// Runs returns an error that says why a kubelet with these settings would not start on a machine; nil where it would.
func (k *Kubelet) Runs(m *topo.Machine) error {
	set, unknown, err := m.ParseList(k.ReservedCPUs)
	if err != nil {
		return fmt.Errorf("kubelet setting reserved: %w", err)
	}
	if online := m.Online(); len(unknown) > 0 || !set.SubsetOf(&online) {
		return fmt.Errorf("kubelet setting reserved=%s names CPUs that are not online: the machine has %s",
			k.ReservedCPUs, m.FormatList(online))
	}
	if k.CPUOptions[alignBySocket] == "true" && m.NumSockets() > m.NumNUMA() {
		return fmt.Errorf("%s needs a machine with no more sockets than NUMA nodes: it has %d and %d", alignBySocket,
			m.NumSockets(), m.NumNUMA())
	}
	for id, types := range k.ReservedMemory {
		n, ok := m.NUMAByID(id)
		if !ok {
			return fmt.Errorf("kubelet setting reserved-memory names NUMA node %d, which the machine does not have", id)
		}
		if bytes := types["memory"]; bytes > m.MemoryBytes(n) {
			return fmt.Errorf("kubelet setting reserved-memory takes %d bytes of NUMA node %d, which has %d", bytes, id,
				m.MemoryBytes(n))
		}
	}
	most, ok := parseMaxNUMA(k.TopologyOptions[maxAllowableNUMA])
	if !ok {
		most = defaultMaxNUMA
	}
	if n := m.NumNUMA(); n > most && k.TopologyPolicy != "" && k.TopologyPolicy != policyNone {
		return fmt.Errorf("the topology policy %s takes at most %d NUMA nodes (%s), the machine has %d",
			k.TopologyPolicy, most, maxAllowableNUMA, n)
	}
	return nil
}

// KubeletSettings lists the words that ParseKubelet understands.
func KubeletSettings() []string {
	return slices.Concat([]string{policyNone, policyStatic}, cpuOptions(),
		[]string{"reserved=LIST", "memory-static", "reserved-memory=NODE[:TYPE]:AMOUNT"}, topologyPolicies(),
		[]string{
			"scope=container", "scope=pod", "pod-scope", preferClosest, maxAllowableNUMA + "=N",
			"version=1.MINOR",
		})
}

// KubeletKeys lists the settings that have a value behind "=".
func KubeletKeys() []string {
	var keys []string
	for _, word := range KubeletSettings() {
		if key, _, ok := strings.Cut(word, "="); ok {
			keys = append(keys, key)
		}
	}
	return ascending(keys)
}

// UnknownSetting is the error of ParseKubelet for a word that it does not know.
type UnknownSetting struct {
	Setting string
	// Also are words that the caller takes besides those of ParseKubelet.
	Also []string
}

// Error names the word and all known ones.
func (u *UnknownSetting) Error() string {
	known := append(KubeletSettings(), u.Also...)
	return fmt.Sprintf("unknown kubelet setting %q: want any of %s", u.Setting, strings.Join(known, ", "))
}

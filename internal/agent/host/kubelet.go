package host

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Options of the CPU manager that have rules of their own.
const (
	fullPCPUsOnly = "full-pcpus-only"
	acrossNUMA    = "distribute-cpus-across-numa"
	alignBySocket = "align-by-socket"
	acrossCores   = "distribute-cpus-across-cores"
	alignL3       = "prefer-align-cpus-by-uncorecache"
	strictReserve = "strict-cpu-reservation"
)

// defaultMaxNUMA is the least and the default value of max-allowable-numa-nodes.
const defaultMaxNUMA = 8

func cpuOptions() []string {
	return []string{fullPCPUsOnly, acrossNUMA, alignBySocket, acrossCores, alignL3, strictReserve}
}

func topologyPolicies() []string {
	return []string{
		annotation.KubeletTopologyBestEffort, annotation.KubeletTopologyRestricted,
		annotation.KubeletTopologySingleNUMA,
	}
}

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
func ParseKubelet(settings string) (annotation.Kubelet, error) {
	k := annotation.Kubelet{
		CPU:    annotation.KubeletCPU{Policy: annotation.KubeletPolicyNone},
		Memory: annotation.KubeletMemory{Policy: annotation.KubeletMemoryNone},
		Topology: annotation.KubeletTopology{
			Policy: annotation.KubeletTopologyNone, Scope: annotation.TopologyScopeContainer,
		},
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
	if err := contradiction(&k); err != nil {
		return k, fmt.Errorf("kubelet settings %q: %w", settings, err)
	}
	openGates(&k)
	return k, nil
}

// contradiction returns why a kubelet would not start with these settings, or would not read some of them.
func contradiction(k *annotation.Kubelet) error {
	switch {
	case k.CPU.Policy != annotation.KubeletPolicyStatic && (len(k.CPU.Options) > 0 || k.CPU.Reserved != ""):
		return fmt.Errorf("CPU manager options and reserved= need the CPU policy %s", annotation.KubeletPolicyStatic)
	case k.Memory.Policy != annotation.KubeletMemoryStatic && len(k.Memory.Reserved) > 0:
		return fmt.Errorf("reserved-memory= needs memory-static")
	case k.Topology.Policy == annotation.KubeletTopologyNone &&
		(len(k.Topology.Options) > 0 || k.Topology.Scope == annotation.TopologyScopePod):
		return fmt.Errorf("the scope pod and Topology Manager options need one of the topology policies %s",
			strings.Join(topologyPolicies(), ", "))
	case k.CPU.Options[alignBySocket] != "" && k.Topology.Policy == annotation.KubeletTopologySingleNUMA:
		return fmt.Errorf("%s cannot be combined with the topology policy %s", alignBySocket,
			annotation.KubeletTopologySingleNUMA)
	}
	for _, pair := range [][2]string{
		{fullPCPUsOnly, acrossCores}, {acrossNUMA, acrossCores}, {alignL3, acrossCores}, {alignL3, acrossNUMA},
	} {
		if k.CPU.Options[pair[0]] != "" && k.CPU.Options[pair[1]] != "" {
			return fmt.Errorf("%s cannot be combined with %s", pair[0], pair[1])
		}
	}
	return nil
}

// openGates adds the feature gate without which the kubelet refuses options that are alpha in its version.
func openGates(k *annotation.Kubelet) {
	alpha := k.CPU.Options[alignBySocket] != "" || k.CPU.Options[acrossCores] != ""
	if v, err := version.ParseSemantic(k.Version); err == nil && v.Minor() <= 33 {
		alpha = alpha || k.CPU.Options[alignL3] != ""
	}
	if alpha {
		k.Gates = map[string]bool{"CPUManagerPolicyAlphaOptions": true}
	}
}

// CheckKubelet returns why a kubelet with these settings would not start on a machine; nil where it would.
func CheckKubelet(k *annotation.Kubelet, m *topo.Machine) error {
	set, unknown, err := m.ParseList(k.CPU.Reserved)
	if err != nil {
		return fmt.Errorf("kubelet setting reserved: %w", err)
	}
	if online := m.Online(); len(unknown) > 0 || !set.SubsetOf(&online) {
		return fmt.Errorf("kubelet setting reserved=%s names CPUs that are not online: the machine has %s",
			k.CPU.Reserved, m.FormatList(online))
	}
	if k.CPU.Options[alignBySocket] == "true" && m.NumSockets() > m.NumNUMA() {
		return fmt.Errorf("%s needs a machine with no more sockets than NUMA nodes: it has %d and %d", alignBySocket,
			m.NumSockets(), m.NumNUMA())
	}
	for id, types := range k.Memory.Reserved {
		n, ok := m.NUMAByID(int(id))
		if !ok {
			return fmt.Errorf("kubelet setting reserved-memory names NUMA node %d, which the machine does not have", id)
		}
		if bytes := types.Memory().Value(); bytes > m.MemoryBytes(n) {
			return fmt.Errorf("kubelet setting reserved-memory takes %d bytes of NUMA node %d, which has %d", bytes, id,
				m.MemoryBytes(n))
		}
	}
	most, ok := parseMaxNUMA(k.Topology.Options[annotation.OptionMaxNUMANodes])
	if !ok {
		most = defaultMaxNUMA
	}
	if n := m.NumNUMA(); n > most && k.Topology.Policy != "" && k.Topology.Policy != annotation.KubeletTopologyNone {
		return fmt.Errorf("the topology policy %s takes at most %d NUMA nodes (%s), the machine has %d",
			k.Topology.Policy, most, annotation.OptionMaxNUMANodes, n)
	}
	return nil
}

// KubeletSettings lists the words that ParseKubelet understands.
func KubeletSettings() []string {
	return slices.Concat([]string{annotation.KubeletPolicyNone, annotation.KubeletPolicyStatic}, cpuOptions(),
		[]string{"reserved=LIST", "memory-static", "reserved-memory=NODE[:TYPE]:AMOUNT"}, topologyPolicies(),
		[]string{
			"scope=container", "scope=pod", "pod-scope", annotation.OptionPreferClosest,
			annotation.OptionMaxNUMANodes + "=N", "version=1.MINOR",
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

package annotation

import (
	"cmp"
	gojson "encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Policies of the kubelet's CPU manager.
const (
	KubeletPolicyNone   = "none"
	KubeletPolicyStatic = "static"
)

// Options of the topology manager.
const (
	OptionPreferClosest = "prefer-closest-numa-nodes"
	OptionMaxNUMANodes  = "max-allowable-numa-nodes"
)

// Attributes of a NodeResourceTopology that name the settings of the kubelet's topology manager, with their values.
const (
	AttributeTopologyPolicy = "topologyManagerPolicy"
	AttributeTopologyScope  = "topologyManagerScope"
	AttributeMaxNUMANodes   = "topologyManagerMaxNUMANodes"

	KubeletTopologyNone       = "none"
	KubeletTopologyBestEffort = "best-effort"
	KubeletTopologyRestricted = "restricted"
	KubeletTopologySingleNUMA = "single-numa-node"

	TopologyScopeContainer = "container"
	TopologyScopePod       = "pod"
)

// Zones of a NodeResourceTopology that are NUMA nodes.
const (
	ZoneTypeNode   = "Node"
	ZoneNamePrefix = "node-"
)

// KubeletCPUManager is the CPU manager of a node's kubelet (KubeletCPUManagerPolicy).
type KubeletCPUManager struct {
	Policy  string            `json:"policy,omitempty"`
	Options map[string]string `json:"options,omitempty"`
	// ReservedCPUs in Linux list format.
	ReservedCPUs string `json:"reservedCPUs,omitempty"`
}

// Static reports whether the kubelet pins Guaranteed containers with integer CPU requests.
func (k KubeletCPUManager) Static() bool { return k.Policy == KubeletPolicyStatic }

// ParseKubeletCPUManager reads a KubeletCPUManager. Option values that Go reads as true or false become "true" or
// "false".
func ParseKubeletCPUManager(text string) (KubeletCPUManager, []Warning, error) {
	return read(text, func(_ *reader, k *KubeletCPUManager) { plainBools(k.Options) })
}

// plainBools writes option values that Go reads as true or false as "true" and "false". A "1" may be a number: it is
// left for options that the kubelet reads as one.
func plainBools(options map[string]string) {
	for name, value := range options {
		if on, err := strconv.ParseBool(value); err == nil && name != OptionMaxNUMANodes {
			options[name] = strconv.FormatBool(on)
		}
	}
}

// CPUTopologyDetail lists the online CPUs of a node (CPUTopology).
type CPUTopologyDetail struct {
	Detail []CPUInfo `json:"detail"`
}

// CPUInfo is one CPU in the kernel's ids, except for Core, which is unique on the node when Tenon's agent writes it and
// at least unique within its socket when others do.
type CPUInfo struct {
	ID     int32 `json:"id"`
	Core   int32 `json:"core"`
	Socket int32 `json:"socket"`
	Node   int32 `json:"node"`
	// L3 is the last-level cache; nil when it is not known.
	L3 *int32 `json:"l3,omitempty"`
}

// String returns the canonical JSON.
func (d CPUTopologyDetail) String() string {
	if d.Detail == nil {
		d.Detail = []CPUInfo{}
	}
	return encode(d)
}

// ParseCPUTopologyDetail reads a CPUTopologyDetail. It does not validate the machine: convert.Machine does.
func ParseCPUTopologyDetail(text string) (CPUTopologyDetail, []Warning, error) {
	return read[CPUTopologyDetail](text, nil)
}

// PodCPUAlloc is the CPUs of one pod on a node.
type PodCPUAlloc struct {
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	// CPUSet in Linux list format.
	CPUSet string `json:"cpuset,omitempty"`
	// ManagedByKubelet is true for CPUs that the kubelet's static policy pinned, false for those that a scheduler
	// allocated.
	ManagedByKubelet bool `json:"managedByKubelet,omitempty"`
}

// PodCPUAllocs are the pods with CPUs of their own on a node (PodCPUAllocsKey).
type PodCPUAllocs []PodCPUAlloc

// String returns the canonical JSON.
func (a PodCPUAllocs) String() string {
	if a == nil {
		a = PodCPUAllocs{}
	}
	return encode([]PodCPUAlloc(a))
}

// podCPUAllocInput is PodCPUAlloc as it may be found: with the CPUs under cpu, with a string for a boolean.
type podCPUAllocInput struct {
	PodCPUAlloc
	CPU              string       `json:"cpu"`
	ManagedByKubelet boolOrString `json:"managedByKubelet"`
}

type boolOrString bool

func (b *boolOrString) UnmarshalJSON(text []byte) error {
	switch s := strings.Trim(string(text), `"`); s {
	case "true":
		*b = true
	case "false", "null", "":
		*b = false
	default:
		return fmt.Errorf("want true or false, got %s", gojson.RawMessage(text))
	}
	return nil
}

// ParsePodCPUAllocs reads PodCPUAllocs; the key cpu is read for cpuset.
func ParsePodCPUAllocs(text string) (PodCPUAllocs, []Warning, error) {
	in, warnings, err := read[[]podCPUAllocInput](text, nil)
	if err != nil {
		return nil, nil, err
	}
	allocs := make(PodCPUAllocs, 0, len(in))
	for _, a := range in {
		a.PodCPUAlloc.CPUSet, a.PodCPUAlloc.ManagedByKubelet = cmp.Or(a.CPUSet, a.CPU), bool(a.ManagedByKubelet)
		allocs = append(allocs, a.PodCPUAlloc)
	}
	return allocs, warnings, nil
}

// CPUSharedPools is a pool of CPUs by NUMA node (CPUSharedPoolsKey, BECPUSharedPoolsKey). A NUMA node whose part of the
// pool is empty is listed, with cpuset "".
type CPUSharedPools []CPUSharedPool

// String returns the canonical JSON.
func (p CPUSharedPools) String() string {
	type pool struct {
		Socket int32  `json:"socket"`
		Node   int32  `json:"node"`
		CPUSet string `json:"cpuset"` // always written: an empty part is empty, not unknown
	}
	out := make([]pool, 0, len(p))
	for _, x := range p {
		out = append(out, pool(x))
	}
	return encode(out)
}

// VolcanoTopologyPolicy is a pod's annotation with one of the kubelet's policies, written by users and by Volcano's job
// controller (seed 004).
const VolcanoTopologyPolicy = "volcano.sh/numa-topology-policy"

// ParseVolcanoTopologyPolicy reads none, best-effort, restricted or single-numa-node; none is TopologyNone.
func ParseVolcanoTopologyPolicy(text string) (NUMATopologyPolicy, []Warning, error) {
	policy, warnings, err := word(text, KubeletTopologyNone, KubeletTopologyBestEffort, KubeletTopologyRestricted,
		KubeletTopologySingleNUMA)
	if err != nil {
		return "", nil, err
	}
	if len(warnings) > 0 {
		warnings[0].Text = fmt.Sprintf("%q is read as %q", text, policy)
	}
	if policy == KubeletTopologyNone {
		return TopologyNone, warnings, nil
	}
	policy, _, _ = match(policy, nil, topologyAliases())
	return policy, warnings, nil
}

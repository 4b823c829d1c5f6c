package nodenumaresource

import (
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/cpualloc"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/follow"
)

// Diagnostics are the endpoints of seed 003 about accounts and mispredictions. The alias is in its curl line.
func (p *Plugin) Diagnostics() diag.Service { return endpoints(p.Account, p.Mispredictions) }

// endpoints serves what account, nil for a node that is not known, and wrong return.
func endpoints(account func(node string) *ledger.View, wrong func() []follow.Misprediction) diag.Service {
	type reader = func(namespace string) bool
	ofNode := func(path string, body func(node string, v *ledger.View, mayRead reader) any) diag.Endpoint {
		return diag.Endpoint{Path: path + "/{nodeName}", Answer: func(r *http.Request, mayRead reader) any {
			node := r.PathValue("nodeName")
			v := account(node)
			if v == nil {
				return nil
			}
			return body(node, v, mayRead)
		}}
	}
	return diag.Service{Aliases: []string{"NodeNUMAResources"}, Endpoints: []diag.Endpoint{
		ofNode("cpuTopologyOptions", func(_ string, v *ledger.View, _ reader) any { return topologyOptionsOf(v) }),
		ofNode("availableCPUs", func(_ string, v *ledger.View, _ reader) any { return availableCPUsOf(v) }),
		ofNode("nodes", func(node string, v *ledger.View, mayRead reader) any {
			return nodeAllocationOf(node, v, mayRead)
		}),
		{Path: "mispredictions", Answer: func(_ *http.Request, mayRead reader) any {
			return slices.DeleteFunc(wrong(), func(m follow.Misprediction) bool { return !mayRead(m.Namespace) })
		}},
	}}
}

// The types below are the JSON of seed 003's NodeNUMAResource endpoints: field names are contract.

// cpuDetail is one CPU with the kernel's IDs of what it belongs to. RefCount is how many pods hold it.
type cpuDetail struct {
	// CPUID, CoreID, NodeID and SocketID are the kernel's: of the CPU, its core, its NUMA node and its socket.
	CPUID    int `json:"cpuID"`
	CoreID   int `json:"coreID"`
	NodeID   int `json:"nodeID"`
	SocketID int `json:"socketID"`
	// RefCount is how many pods hold the CPU. More than one is a fault, which the ledger reports.
	RefCount int `json:"refCount"`
	// ExclusivePolicy is that of the pod which holds the CPU; empty for none.
	ExclusivePolicy string `json:"exclusivePolicy"`
}

// cpuTopology is the machine's topology. CPUDetails has its online CPUs by ID.
type cpuTopology struct {
	// NumCPUs, NumCores, NumNodes and NumSockets count the online CPUs and what has at least one of them.
	NumCPUs    int `json:"numCPUs"`
	NumCores   int `json:"numCores"`
	NumNodes   int `json:"numNodes"`
	NumSockets int `json:"numSockets"`
	// CPUDetails are the online CPUs by ID.
	CPUDetails map[string]cpuDetail `json:"cpuDetails"`
}

// topologyOptions is the topology with what no pod may have, and how the kubelet manages CPUs.
type topologyOptions struct {
	// CPUTopology is null while the node has no valid topology; Fault then names the reason's code.
	CPUTopology *cpuTopology `json:"cpuTopology"`
	// ReservedCPUs are the CPUs that no pod gets for itself: those reserved by the kubelet or on the Node, and those of
	// pods of QoS class SYSTEM. They are in Linux list format.
	ReservedCPUs string `json:"reservedCPUs"`
	// MaxRefCount is how many pods may hold a CPU. It is always 1.
	MaxRefCount int `json:"maxRefCount"`
	// Policy is that of the kubelet's CPU manager, with the options that are on.
	Policy annotation.KubeletCPUManager `json:"policy"`
	// Fault is the code of what is wrong with the topology; empty for a node with a valid one.
	Fault string `json:"fault,omitempty"`
}

// availableCPUs is a list of the CPUs that no pod holds, and the CPUs that pods hold, by ID.
type availableCPUs struct {
	// AvailableCPUs are the CPUs that a pod may still get for itself, in Linux list format.
	AvailableCPUs string `json:"availableCPUs"`
	// Allocated are the CPUs that pods hold, by ID.
	Allocated map[string]cpuDetail `json:"allocated"`
}

type numaResource = annotation.NUMANodeResource

// allocatedPod is a pod with CPUs of its own.
type allocatedPod struct {
	// UID, Namespace and Name are those of the pod.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// CPUSet are the CPUs that the pod holds, in Linux list format.
	CPUSet string `json:"cpuset"`
	// Exclusive is the policy of the pod that keeps others off its cores or NUMA nodes; empty for none.
	Exclusive string `json:"cpuExclusivePolicy"`
}

// nodeAllocation is the account of one node. Amounts by NUMA node are milli-CPUs.
type nodeAllocation struct {
	topologyOptions
	availableCPUs
	// Name is that of the node.
	Name string `json:"name"`
	// Policy is the topology policy that holds on the node; empty for none.
	Policy string `json:"numaTopologyPolicy"`
	// Total is what the online CPUs of each NUMA node come to.
	Total []numaResource `json:"numaNodeResources"`
	// Remaining is Total less Allocated.
	Remaining []numaResource `json:"remainingNUMANodeResources"`
	// Allocated is what pods hold: their exclusive CPUs, and what is promised to the others.
	Allocated []numaResource `json:"allocatedNUMANodeResources"`
	// CPUs are the CPUs that pods hold, by ID: the same as in the answer about available CPUs.
	CPUs map[string]cpuDetail `json:"allocatedCPUs"`
	// Pods are the pods with CPUs of their own that the caller may read.
	Pods []allocatedPod `json:"allocatedPods"`
	// PodsHidden counts those in namespaces that the caller may not read. Their CPUs count above.
	PodsHidden int `json:"podsHidden,omitempty"`
	// SharedPool are the CPUs on which pods without CPUs of their own run, in Linux list format.
	SharedPool string `json:"sharedPool"`
	// BESharedPool are the CPUs on which best-effort pods run, in Linux list format.
	BESharedPool string `json:"beSharedPool"`
}

// topologyOptionsOf returns the topology of an account; without a machine, the code of what is wrong with it.
func topologyOptionsOf(v *ledger.View) topologyOptions {
	f, m := v.Facts(), v.Machine()
	out := topologyOptions{MaxRefCount: 1, Policy: policyOf(f)}
	if m == nil {
		out.Fault = f.Fault.Code.String()
		return out
	}
	online := m.Online()
	out.ReservedCPUs = m.FormatList(f.Model.Config.CPU.Reserved.Union(f.NodeReserved).Union(f.System))
	out.CPUTopology = &cpuTopology{
		NumCPUs: online.Len(), NumCores: m.NumCores(), NumNodes: m.NumNUMA(), NumSockets: m.NumSockets(),
		CPUDetails: details(m, online),
	}
	return out
}

// policyOf returns the policy of the kubelet's CPU manager in the form of the node's annotation, with the options that
// are on.
func policyOf(f *ledger.Facts) annotation.KubeletCPUManager {
	cpu := &f.Model.Config.CPU
	if !cpu.Static {
		return annotation.KubeletCPUManager{Policy: annotation.KubeletPolicyNone}
	}
	p := annotation.KubeletCPUManager{Policy: annotation.KubeletPolicyStatic, Options: map[string]string{}}
	for name, on := range map[string]bool{
		"full-pcpus-only":                  cpu.FullPCPUsOnly,
		"distribute-cpus-across-numa":      cpu.DistributeAcrossNUMA,
		"strict-cpu-reservation":           cpu.StrictReservation,
		"prefer-align-cpus-by-uncorecache": cpu.AlignL3,
	} {
		if on {
			p.Options[name] = "true"
		}
	}
	if f.Machine != nil {
		p.ReservedCPUs = f.Machine.FormatList(cpu.Reserved)
	}
	return p
}

// details returns the CPUs of a set by ID.
func details(m *topo.Machine, cpus cpuset.Set) map[string]cpuDetail {
	out := make(map[string]cpuDetail, cpus.Len())
	for i := range cpus.All() {
		c := topo.CPU(i)
		id := m.CPUID(c)
		out[strconv.Itoa(id)] = cpuDetail{
			CPUID: id, CoreID: m.CoreID(c), NodeID: m.NUMAID(m.NUMAOf(c)),
			SocketID: m.SocketID(m.SocketOf(c)),
		}
	}
	return out
}

// availableCPUsOf returns the free and the held CPUs of an account; none without a machine.
func availableCPUsOf(v *ledger.View) availableCPUs {
	m := v.Machine()
	if m == nil {
		return availableCPUs{Allocated: map[string]cpuDetail{}}
	}
	return availableCPUs{AvailableCPUs: m.FormatList(v.Allocatable()), Allocated: holders(v)}
}

// holders lists the CPUs that pods hold, with how many hold each (more than one is a fault that the ledger reports).
func holders(v *ledger.View) map[string]cpuDetail {
	m := v.Machine()
	held := map[string]cpuDetail{}
	for e := range v.Entries() {
		if !e.Role.Binds() {
			continue
		}
		for id, d := range details(m, v.CPUsOf(e.UID)) {
			d.RefCount = held[id].RefCount + 1
			d.ExclusivePolicy = exclusiveName(e.Exclusive)
			held[id] = d
		}
	}
	return held
}

// exclusiveName writes "no policy" as Koordinator does.
func exclusiveName(e cpualloc.Exclusive) string {
	if e == cpualloc.NotExclusive {
		return ""
	}
	return e.String()
}

// nodeAllocationOf returns the account of a node. Pods in namespaces that the caller may not read are only counted.
func nodeAllocationOf(name string, v *ledger.View, mayRead func(namespace string) bool) nodeAllocation {
	out := nodeAllocation{
		topologyOptions: topologyOptionsOf(v), availableCPUs: availableCPUsOf(v),
		Name: name, Total: []numaResource{}, Remaining: []numaResource{}, Allocated: []numaResource{},
		Pods: []allocatedPod{},
		CPUs: map[string]cpuDetail{},
	}
	if p := v.Facts().Topology; p != hint.None {
		out.Policy = p.Label()
	}
	m := v.Machine()
	if m == nil {
		return out
	}
	out.CPUs = out.availableCPUs.Allocated
	out.SharedPool, out.BESharedPool = m.FormatList(v.SharedPool()), m.FormatList(v.BEPool())
	// What a NUMA node has left: all its CPUs but those that pods hold alone and the amounts promised to the others.
	exclusive := v.LSE().Union(v.LSR()).Union(v.KubeletStatic())
	for _, n := range m.CPUNodes() {
		cpus := m.NUMACPUs(n).Intersect(m.Online())
		s := v.Summary().Nodes[n]
		total := int64(cpus.Len()) * 1000
		used := int64(exclusive.CountIn(&cpus))*1000 + s.Promised
		out.Total = append(out.Total, cpuOn(m.NUMAID(n), total))
		out.Allocated = append(out.Allocated, cpuOn(m.NUMAID(n), used))
		out.Remaining = append(out.Remaining, cpuOn(m.NUMAID(n), total-used))
	}
	for e := range v.Entries() {
		if !e.Role.Binds() {
			continue
		}
		if !mayRead(e.Namespace) {
			out.PodsHidden++
			continue
		}
		out.Pods = append(out.Pods, allocatedPod{
			e.UID, e.Namespace, e.Name, m.FormatList(v.CPUsOf(e.UID)),
			exclusiveName(e.Exclusive),
		})
	}
	return out
}

// cpuOn returns an amount of CPU on a NUMA node, by the kernel's ID.
func cpuOn(node int, milli int64) numaResource {
	return numaResource{Node: int32(node), Resources: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI),
	}}
}

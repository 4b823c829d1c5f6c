package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/core/why"
)

// States of a CPU, in `tenon topology -o json`.
const (
	CPUFree            = "free"            // in the shared pools, may be given away
	CPULSE             = "lse"             // held by an LSE pod alone
	CPULSR             = "lsr"             // held by an LSR pod, shared with BE
	CPUKubelet         = "kubelet"         // pinned by a static kubelet
	CPUKubeletReserved = "kubeletReserved" // in the shared pools, never given away
	CPUReserved        = "reserved"        // reserved by the node's annotation
	CPUSystem          = "system"
	CPUIsolated        = "isolated" // by the boot; in no pool, and without a pod
	CPUOffline         = "offline"
	CPUTwice           = "heldTwice" // a fault
)

// Node is one node as `tenon topology` shows it. Ids are the kernel's.
type Node struct {
	Name           string `json:"node"`
	Arch           string `json:"arch,omitempty"`
	CPUs           int    `json:"cpus"`
	Cores          int    `json:"cores"`
	ThreadsPerCore int    `json:"threadsPerCore"`
	NUMANodes      int    `json:"numaNodes"`
	// KubeletPolicy is the CPU manager's policy as far as it counts: a policy that cannot be read counts as none.
	KubeletPolicy string   `json:"kubeletPolicy"`
	Mode          Mode     `json:"mode"`
	Kubelet       Kubelet  `json:"kubelet"`
	Policies      Policies `json:"policies"`
	SharedPool    string   `json:"sharedPool"`
	BESharedPool  string   `json:"beSharedPool"`
	Allocatable   string   `json:"allocatable"`
	Fault         string   `json:"fault,omitempty"`
	Sockets       []Socket `json:"sockets"`
	Pods          []Holder `json:"pods"`
	// Devices is absent for a node without a Device object.
	Devices *NodeDevices `json:"devices,omitempty"`
	// SharedPods and BEPods count the pods of the two pools that are not bound to any CPU or NUMA node.
	SharedPods int `json:"sharedPods"`
	BEPods     int `json:"bePods"`
	// SharedMemory is the memory that these pods request. Any NUMA node may serve it, so NUMA.MemoryFree does not count
	// it. "" where they request none.
	SharedMemory string    `json:"sharedMemory,omitempty"`
	Problems     []Problem `json:"problems"`
	// Health says whether new pods can use what is free.
	Health health.Health `json:"health,omitzero"`
}

// Policies are those of the scheduler for the node.
type Policies struct {
	CPUBind      string `json:"cpuBind,omitempty"`
	NUMAAllocate string `json:"numaAllocate"`
	NUMATopology string `json:"numaTopology"`
	// From has the names of the other fields as keys.
	From map[string]Origin `json:"from"`
}

// Socket is one socket with its part of the NUMA nodes.
type Socket struct {
	Socket int    `json:"socket"`
	NUMA   []NUMA `json:"numaNodes"`
}

// NUMA is one NUMA node.
type NUMA struct {
	Node int `json:"node"`
	// Memory is the capacity, MemoryAllocatable what pods may request, MemoryFree what no pod holds; "" when unknown.
	Memory            string `json:"memory,omitempty"`
	MemoryAllocatable string `json:"memoryAllocatable,omitempty"`
	MemoryFree        string `json:"memoryFree,omitempty"`
	// MemoryBy are the pods that hold memory of this node by a topology policy, the most first.
	MemoryBy []MemoryHolder `json:"memoryBy,omitempty"`
	// Hugepages is the same by size, for sizes of which there are pages.
	Hugepages map[string]Memory `json:"hugepages,omitempty"`
	// MemoryGroup are the NUMA nodes that the kubelet's memory manager serves requests from together with this one.
	MemoryGroup []int `json:"memoryGroup,omitempty"`
	// Distances is the node's row of the SLIT matrix.
	Distances    []int  `json:"distances"`
	SharedPool   string `json:"sharedPool"`
	BESharedPool string `json:"beSharedPool"`
	// Isolated are the CPUs that the boot isolated, those of pods too; "" for none.
	Isolated string `json:"isolated,omitempty"`
	Free     int    `json:"free"`
	Cores    []Core `json:"cores"`
	// L3Use is how busy the CPUs of each L3 cache were by the last report, by L3; empty where that is not known.
	L3Use []CacheUse `json:"l3Use,omitempty"`
}

// CacheUse is how busy the CPUs of an L3 cache were on average.
type CacheUse struct {
	L3          int `json:"l3"`
	UsedPercent int `json:"usedPercent"`
}

// MemoryHolder is a pod that holds memory of a NUMA node.
type MemoryHolder struct {
	Pod    string `json:"pod"` // namespace/name
	Memory string `json:"memory"`
}

// Core is one physical core.
type Core struct {
	Core int    `json:"core"`
	L3   int    `json:"l3"`
	Kind string `json:"kind,omitempty"`
	CPUs []CPU  `json:"cpus"`
}

// CPU is one logical CPU; Pods are those that hold it, and UsedPercent is how busy it was by the last report, nil where
// that is not known.
type CPU struct {
	CPU   int      `json:"cpu"`
	State string   `json:"state"`
	Pods  []string `json:"pods,omitempty"`

	UsedPercent *int `json:"usedPercent,omitempty"`
}

// Holder is a pod that holds CPUs or is bound to NUMA nodes.
type Holder struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	QoS       string `json:"qos"`
	CPUSet    string `json:"cpuset,omitempty"`
	Exclusive string `json:"cpuExclusivePolicy,omitempty"`
	NUMANodes []int  `json:"numaNodes"`
	// Pool is "shared" for a pod of a shared pool that is bound to NUMANodes.
	Pool string `json:"pool,omitempty"`
	// Interrupts is how often interrupts fire on CPUSet, by the last report; nil where that is not known.
	Interrupts *quiet.Rate `json:"interruptsPerSecond,omitempty"`
}

// Problem is what is wrong with a node or with a pod on it.
type Problem struct {
	Pod  string `json:"pod,omitempty"`
	Text string `json:"text"`
}

// Origin is where a setting comes from.
type Origin struct {
	// Source is nodeLabel, annotation, attribute or topologyPolicies (of the NodeResourceTopology), numatopology
	// (Volcano's object), pluginArgument (of the scheduler; its default is shown), or assumed.
	Source string `json:"source"`
	// Key is the label's, annotation's or attribute's.
	Key string `json:"key,omitempty"`
}

// Sources of a setting.
const (
	FromLabel        = "nodeLabel"
	FromAnnotation   = "annotation"
	FromAttribute    = "attribute"
	FromPolicies     = "topologyPolicies"
	FromNumatopology = "numatopology"
	FromArgument     = "pluginArgument"
	FromAssumption   = "assumed"
)

// Mode is whose CPU assignments hold.
type Mode struct {
	Mode string `json:"mode"`
	From Origin `json:"from"`
	// Wish is the node's label, when it says something else or the agent has not answered it.
	Wish string `json:"wish,omitempty"`
	// Takeover is how far Tenon has taken the CPUs over from a static kubelet; nil where the agent reports none.
	Takeover *Takeover `json:"takeover,omitempty"`
}

// Takeover is the progress of taking CPUs over from a kubelet.
type Takeover struct {
	// Phase is 1 while the kubelet keeps the CPUs, and 2 when Tenon assigns those of new pods: since the time Since.
	Phase int32      `json:"phase"`
	Since *time.Time `json:"since,omitempty"`
	// RemainingPods counts the pods that the kubelet still pins.
	RemainingPods int32 `json:"remainingPods"`
}

// ModeOfNode is the mode of one of several nodes.
type ModeOfNode struct {
	Node string `json:"node"`
	Mode
	// KubeletPolicy is the policy of its kubelet's CPU manager.
	KubeletPolicy string `json:"kubeletPolicy"`
}

// Kubelet is what is known of a node's kubelet.
type Kubelet struct {
	Version  string  `json:"version,omitempty"`
	CPU      Manager `json:"cpuManager"`
	Memory   Manager `json:"memoryManager"`
	Topology Manager `json:"topologyManager"`
	// Model is the release whose answers are predicted; "" while none are.
	Model string `json:"model,omitempty"`
	// Fault is why they cannot be predicted although they should be.
	Fault string `json:"fault,omitempty"`
	// Assumed names what is taken for granted: settings that no source reports, and what the model does not know.
	Assumed string `json:"assumed,omitempty"`
}

// Manager is one manager of a kubelet.
type Manager struct {
	Policy  string            `json:"policy"`
	Scope   string            `json:"scope,omitempty"`
	Options map[string]string `json:"options,omitempty"`
	// Reserved are CPUs in list format, or amounts of memory by NUMA node: "0: 1Gi".
	Reserved string `json:"reserved,omitempty"`
	From     Origin `json:"from"`
}

// Memory is one type of memory of a NUMA node.
type Memory struct {
	Capacity    string `json:"capacity,omitempty"`
	Allocatable string `json:"allocatable,omitempty"`
	Free        string `json:"free,omitempty"`
}

// NodeOf returns a node by its account, whose pods are given by their UIDs. What API objects alone say is left out:
// Mode, Kubelet, the origins of policies, memory.
func NodeOf(name string, v *ledger.View, pods map[string]qos.Pod) Node {
	f, m := v.Facts(), v.Machine()
	out := Node{
		Name: name, KubeletPolicy: "none", Policies: Policies{
			CPUBind:      [...]string{"", "None", "FullPCPUsOnly", "SpreadByPCPUs"}[f.Bind],
			NUMAAllocate: f.Strategy.String(), NUMATopology: f.Topology.Label(),
		},
		Sockets: []Socket{}, Pods: []Holder{}, Problems: []Problem{},
	}
	if f.Model.Config.CPU.Static {
		out.KubeletPolicy = "static"
	}
	for uid, class := range pods {
		if e, ok := v.Entry(uid); ok && len(e.NUMAIDs) > 0 {
			continue
		}
		switch roleOf(v, uid, class) {
		case qos.SharedPool:
			out.SharedPods++
		case qos.BEPool:
			out.BEPods++
		}
	}
	out.Devices = NodeDevicesOf(v)
	out.Problems = append(out.Problems, vanishedDevices(v)...)
	if m == nil {
		out.Fault = f.Fault.Code.String()
		return out
	}
	out.Arch, out.CPUs, out.Cores = m.Arch(), m.NumCPUs(), m.NumCores()
	out.ThreadsPerCore, out.NUMANodes = m.ThreadsPerCore(), m.NumNUMA()
	out.SharedPool, out.BESharedPool, out.Allocatable = m.FormatList(v.SharedPool()), m.FormatList(v.BEPool()),
		m.FormatList(v.Allocatable())
	states := newCPUStates(v)
	out.Pods, states.holders = holders(v)
	out.addProblems(v)
	for s := range m.NumSockets() {
		out.Sockets = append(out.Sockets, states.socket(topo.Socket(s)))
	}
	return out
}

// holders returns the pods that hold CPUs or are bound to NUMA nodes, and the names of those that hold a CPU, by its
// dense index.
func holders(v *ledger.View) ([]Holder, map[int][]string) {
	m, pods, namesByCPU := v.Machine(), []Holder{}, map[int][]string{}
	hold := func(p Holder, cpus cpuset.Set) {
		p.CPUSet, p.NUMANodes = m.FormatList(cpus), NUMAIDs(m, cpus)
		pods = append(pods, p)
		for c := range cpus.All() {
			namesByCPU[c] = append(namesByCPU[c], p.Namespace+"/"+p.Name)
		}
	}
	for e := range v.Entries() {
		p := Holder{Namespace: e.Namespace, Name: e.Name, QoS: e.Class.String()}
		switch {
		case e.Role.Binds():
			if e.Exclusive != 0 {
				p.Exclusive = e.Exclusive.String()
			}
			hold(p, v.CPUsOf(e.UID))
		case len(e.NUMAIDs) > 0:
			p.Pool, p.NUMANodes = "shared", e.NUMAIDs
			pods = append(pods, p)
		}
	}
	for pin := range v.Pins() {
		e, known := v.Entry(pin.UID)
		p := Holder{Namespace: pin.Namespace, Name: pin.Name, QoS: "kubelet"}
		switch { // exporters tell a pod's UID alone, or its name alone
		case e.Role.Binds():
			continue
		case known:
			p.Namespace, p.Name = e.Namespace, e.Name
		case pin.Name == "":
			p.Namespace, p.Name = "", pin.UID
		}
		hold(p, pin.CPUs)
	}
	slices.SortFunc(pods, func(a, b Holder) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return pods, namesByCPU
}

// NUMAIDs are the kernel's ids of the NUMA nodes of CPUs.
func NUMAIDs(m *topo.Machine, cpus cpuset.Set) []int { return numaIDs(m, m.NodesOf(&cpus)) }

func (o *Node) addProblems(v *ledger.View) {
	for _, p := range v.Problems() {
		text := CPUs(p.CPUs) + ": " + p.Kind
		if p.Other != "" {
			text += " with " + entryName(v, p.Other)
		}
		if d := p.Debt; !d.OK() {
			text = DebtText(d)
		}
		o.Problems = append(o.Problems, Problem{Pod: entryName(v, p.UID), Text: text})
	}
}

// DebtText says of which NUMA node pods hold more than it has.
func DebtText(d why.Reason) string {
	text := BytesText
	if d.Unit == why.MilliCPU {
		text = CPUText
	}
	return fmt.Sprintf("NUMA node %d: pods hold %s of %s, it has %s", d.Where.Index, text(d.Asked), d.Resource,
		text(d.Free))
}

func entryName(v *ledger.View, uid string) string {
	if e, ok := v.Entry(uid); ok {
		return e.Namespace + "/" + e.Name
	}
	return uid
}

type cpuStates struct {
	v       *ledger.View
	m       *topo.Machine
	holders map[int][]string // dense CPU index to namespace/name
	// memory are the pods that hold memory of a NUMA node, by the kernel's id, the most first.
	memory map[int][]heldMemory
	fixed  []cpuState
}

type heldMemory struct {
	pod   string
	bytes int64
}

func memoryHolders(v *ledger.View) map[int][]heldMemory {
	held := map[int][]heldMemory{}
	for e := range v.Entries() {
		for _, a := range e.Amounts {
			if a.Resource == why.Memory && a.N > 0 {
				held[a.NUMAID] = append(held[a.NUMAID], heldMemory{e.Namespace + "/" + e.Name, a.N})
			}
		}
	}
	for _, list := range held {
		slices.SortFunc(list, func(a, b heldMemory) int {
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), strings.Compare(a.pod, b.pod))
		})
	}
	return held
}

type cpuState struct {
	state string
	cpus  cpuset.Set
}

func newCPUStates(v *ledger.View) *cpuStates {
	f, m := v.Facts(), v.Machine()
	return &cpuStates{v: v, m: m, memory: memoryHolders(v), fixed: []cpuState{
		{CPUOffline, m.All().Minus(m.Online())},
		{CPULSE, v.LSE()},
		{CPULSR, v.LSR()},
		{CPUKubelet, v.KubeletStatic()},
		{CPUReserved, f.NodeReserved},
		{CPUSystem, f.System},
		{CPUIsolated, f.Isolated},
		{CPUKubeletReserved, f.Model.Config.CPU.Reserved},
	}}
}

func (s *cpuStates) cpu(c topo.CPU) CPU {
	out := CPU{CPU: s.m.CPUID(c), State: CPUFree, Pods: s.holders[int(c)]}
	if i := slices.IndexFunc(s.fixed, func(f cpuState) bool { return f.cpus.Has(int(c)) }); i >= 0 {
		out.State = s.fixed[i].state
	}
	if len(out.Pods) > 1 {
		out.State = CPUTwice
	}
	return out
}

// socket lists the NUMA nodes that have cores on the socket; one that spans sockets appears under each with its part.
func (s *cpuStates) socket(socket topo.Socket) Socket {
	out := Socket{Socket: s.m.SocketID(socket), NUMA: []NUMA{}}
	for n := range s.m.NumNUMA() {
		numa := topo.NUMA(n)
		view := s.numa(numa, socket)
		memoryOnly := s.m.NUMACPUs(numa) == cpuset.Set{} && s.m.NUMASocket(numa) == socket
		if len(view.Cores) > 0 || memoryOnly {
			out.NUMA = append(out.NUMA, view)
		}
	}
	return out
}

func (s *cpuStates) numa(n topo.NUMA, socket topo.Socket) NUMA {
	cpus := s.m.NUMACPUs(n)
	free := s.v.Allocatable().Intersect(cpus)
	out := NUMA{
		Node: s.m.NUMAID(n), Distances: []int{}, Cores: []Core{}, Free: free.Len(),
		SharedPool:   s.m.FormatList(s.v.SharedPool().Intersect(cpus)),
		BESharedPool: s.m.FormatList(s.v.BEPool().Intersect(cpus)),
		Isolated:     s.m.FormatList(s.v.Facts().Isolated.Intersect(cpus)),
	}
	for _, h := range s.memory[out.Node] {
		out.MemoryBy = append(out.MemoryBy, MemoryHolder{h.pod, BytesText(h.bytes)})
	}
	for other := range s.m.NumNUMA() {
		out.Distances = append(out.Distances, s.m.Distance(n, topo.NUMA(other)))
	}
	for _, c := range s.m.NUMACores(n) {
		if s.m.CoreSocket(c) == socket {
			out.Cores = append(out.Cores, s.core(c))
		}
	}
	return out
}

func (s *cpuStates) core(c topo.Core) Core {
	cpus := s.m.CoreCPUs(c)
	out := Core{Core: s.m.CoreID(cpus[0]), L3: int(s.m.CoreL3(c))}
	if kind := s.m.KindOf(cpus[0]); kind != topo.Uniform {
		out.Kind = kind.String()
	}
	for _, cpu := range cpus {
		out.CPUs = append(out.CPUs, s.cpu(cpu))
	}
	return out
}

func roleOf(v *ledger.View, uid string, class qos.Pod) qos.Role {
	if e, known := v.Entry(uid); known && e.Role.Binds() {
		return e.Role
	}
	for pin := range v.Pins() {
		class.PinnedByKubelet = class.PinnedByKubelet || pin.UID == uid
	}
	return qos.RoleOf(class)
}

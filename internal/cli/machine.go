package cli

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// States of a CPU, in `tenon topology -o json`.
const (
	cpuFree            = "free"            // in the shared pools, may be given away
	cpuLSE             = "lse"             // held by an LSE pod alone
	cpuLSR             = "lsr"             // held by an LSR pod, shared with BE
	cpuKubelet         = "kubelet"         // pinned by a static kubelet
	cpuKubeletReserved = "kubeletReserved" // in the shared pools, never given away
	cpuReserved        = "reserved"        // reserved by the node's annotation
	cpuSystem          = "system"
	cpuOffline         = "offline"
	cpuTwice           = "heldTwice" // a fault
)

// machineView is one node as `tenon topology` shows it. Ids are the kernel's.
type machineView struct {
	Node           string `json:"node"`
	Arch           string `json:"arch,omitempty"`
	CPUs           int    `json:"cpus"`
	Cores          int    `json:"cores"`
	ThreadsPerCore int    `json:"threadsPerCore"`
	NUMANodes      int    `json:"numaNodes"`
	// KubeletPolicy is the CPU manager's policy as far as it counts: a policy that cannot be read counts as none.
	KubeletPolicy string       `json:"kubeletPolicy"`
	Mode          modeView     `json:"mode"`
	Kubelet       kubeletView  `json:"kubelet"`
	Policies      policyView   `json:"policies"`
	SharedPool    string       `json:"sharedPool"`
	BESharedPool  string       `json:"beSharedPool"`
	Allocatable   string       `json:"allocatable"`
	Fault         string       `json:"fault,omitempty"`
	Sockets       []socketView `json:"sockets"`
	Pods          []podView    `json:"pods"`
	// SharedPods and BEPods count the pods of the two pools that are not bound to any CPU or NUMA node.
	SharedPods int           `json:"sharedPods"`
	BEPods     int           `json:"bePods"`
	Problems   []problemView `json:"problems"`
}

type policyView struct {
	CPUBind      string `json:"cpuBind,omitempty"`
	NUMAAllocate string `json:"numaAllocate"`
	NUMATopology string `json:"numaTopology"`
	// From has the names of the other fields as keys.
	From map[string]origin `json:"from"`
}

type socketView struct {
	Socket int        `json:"socket"`
	NUMA   []numaView `json:"numaNodes"`
}

type numaView struct {
	Node int `json:"node"`
	// Memory is the capacity, MemoryAllocatable what pods may request, MemoryFree what no pod holds; "" when unknown.
	Memory            string `json:"memory,omitempty"`
	MemoryAllocatable string `json:"memoryAllocatable,omitempty"`
	MemoryFree        string `json:"memoryFree,omitempty"`
	// Hugepages is the same by size, for sizes of which there are pages.
	Hugepages map[string]memoryView `json:"hugepages,omitempty"`
	// MemoryGroup are the NUMA nodes that the kubelet's memory manager serves requests from together with this one.
	MemoryGroup []int `json:"memoryGroup,omitempty"`
	// Distances is the node's row of the SLIT matrix.
	Distances    []int      `json:"distances"`
	SharedPool   string     `json:"sharedPool"`
	BESharedPool string     `json:"beSharedPool"`
	Free         int        `json:"free"`
	Cores        []coreView `json:"cores"`
}

type coreView struct {
	Core int       `json:"core"`
	L3   int       `json:"l3"`
	Kind string    `json:"kind,omitempty"`
	CPUs []cpuView `json:"cpus"`
}

type cpuView struct {
	CPU   int      `json:"cpu"`
	State string   `json:"state"`
	Pods  []string `json:"pods,omitempty"`
}

// podView is a pod that holds CPUs or is bound to NUMA nodes.
type podView struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	QoS       string `json:"qos"`
	CPUSet    string `json:"cpuset,omitempty"`
	Exclusive string `json:"cpuExclusivePolicy,omitempty"`
	NUMANodes []int  `json:"numaNodes"`
	// Pool is "shared" for a pod of a shared pool that is bound to NUMANodes.
	Pool string `json:"pool,omitempty"`
}

type problemView struct {
	Pod  string `json:"pod,omitempty"`
	Text string `json:"text"`
}

func newMachineView(a *account, node string) machineView {
	v := a.view(node)
	f, m := v.Facts(), v.Machine()
	out := machineView{
		Node: node, KubeletPolicy: "none", Policies: policyView{
			CPUBind:      bindName(f.Bind),
			NUMAAllocate: f.Strategy.String(), NUMATopology: f.Topology.String(),
		},
		Sockets: []socketView{}, Pods: []podView{}, Problems: []problemView{},
	}
	if f.Kubelet.Static {
		out.KubeletPolicy = "static"
	}
	for _, p := range a.pods[node] {
		out.count(v, p)
	}
	known, _ := a.store.Node(node)
	out.Mode, out.Kubelet = newModeView(known.Object, known.Topology),
		newKubeletView(known.Object, known.Topology, &f.Model)
	if f.Imported {
		out.imported(known.Numatopology, f)
	}
	out.Policies.From = originsOf(known.Object, f, &out.Kubelet)
	for _, p := range known.Problems {
		out.Problems = append(out.Problems, problemView{Text: strings.TrimSpace(p.Object + " " + p.Key + ": " +
			p.Text)})
	}
	if m == nil {
		out.Fault = f.Fault.Code.String()
		return out
	}
	out.Arch, out.CPUs, out.Cores = m.Arch(), m.NumCPUs(), m.NumCores()
	out.ThreadsPerCore, out.NUMANodes = m.ThreadsPerCore(), m.NumNUMA()
	out.SharedPool, out.BESharedPool, out.Allocatable = m.FormatList(v.SharedPool()), m.FormatList(v.BEPool()),
		m.FormatList(v.Allocatable())
	out.addPods(v)
	out.addProblems(v)
	states := newCPUStates(v)
	states.memory = newMemoryBook(v, known.Topology)
	for s := range m.NumSockets() {
		out.Sockets = append(out.Sockets, states.socket(topo.Socket(s)))
	}
	return out
}

func bindName(b ledger.NodeBind) string {
	return [...]string{"", "None", "FullPCPUsOnly", "SpreadByPCPUs"}[b]
}

func (o *machineView) count(v *ledger.View, p *corev1.Pod) {
	if e, ok := v.Entry(string(p.UID)); ok && len(e.NUMAIDs) > 0 {
		return
	}
	switch roleOf(v, p) {
	case qos.SharedPool:
		o.SharedPods++
	case qos.BEPool:
		o.BEPods++
	}
}

func (o *machineView) addPods(v *ledger.View) {
	m := v.Machine()
	for e := range v.Entries() {
		p := podView{Namespace: e.Namespace, Name: e.Name, QoS: e.Class.String(), NUMANodes: []int{}}
		switch {
		case e.Role.Binds():
			cpus := v.CPUsOf(e.UID)
			p.CPUSet, p.NUMANodes = m.FormatList(cpus), numaIDs(m, cpus)
			if e.Exclusive != 0 {
				p.Exclusive = e.Exclusive.String()
			}
		case len(e.NUMAIDs) > 0:
			p.Pool, p.NUMANodes = "shared", e.NUMAIDs
		default:
			continue
		}
		o.Pods = append(o.Pods, p)
	}
	for _, pin := range v.Pins() {
		if e, ok := v.Entry(pin.UID); ok && e.Role.Binds() {
			continue
		}
		namespace, name := holderOf(v, pin)
		o.Pods = append(o.Pods, podView{
			Namespace: namespace, Name: name, QoS: "kubelet", CPUSet: m.FormatList(pin.CPUs),
			NUMANodes: numaIDs(m, pin.CPUs),
		})
	}
	slices.SortFunc(o.Pods, func(a, b podView) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

func numaIDs(m *topo.Machine, cpus cpuset.Set) []int {
	ids := []int{}
	for _, n := range m.CPUNodes() {
		if on := m.NUMACPUs(n); on.Overlaps(&cpus) {
			ids = append(ids, m.NUMAID(n))
		}
	}
	return ids
}

func (o *machineView) addProblems(v *ledger.View) {
	for _, p := range v.Problems() {
		text := "CPUs " + p.CPUs + ": " + p.Kind
		if p.Other != "" {
			text += " with " + entryName(v, p.Other)
		}
		o.Problems = append(o.Problems, problemView{Pod: entryName(v, p.UID), Text: text})
	}
}

func entryName(v *ledger.View, uid string) string {
	if e, ok := v.Entry(uid); ok {
		return e.Namespace + "/" + e.Name
	}
	return uid
}

// cpuStates determines the use of each CPU of a view.
type cpuStates struct {
	v       *ledger.View
	m       *topo.Machine
	holders map[int][]string // dense CPU index to namespace/name
	memory  memoryBook
	fixed   []struct {
		state string
		cpus  cpuset.Set
	}
}

func newCPUStates(v *ledger.View) *cpuStates {
	s := &cpuStates{v: v, m: v.Machine(), holders: map[int][]string{}}
	hold := func(name string, cpus cpuset.Set) {
		for c := range cpus.All() {
			s.holders[c] = append(s.holders[c], name)
		}
	}
	for e := range v.Entries() {
		if e.Role.Binds() {
			hold(e.Namespace+"/"+e.Name, v.CPUsOf(e.UID))
		}
	}
	for _, pin := range v.Pins() {
		if e, ok := v.Entry(pin.UID); !ok || !e.Role.Binds() {
			namespace, name := holderOf(v, pin)
			hold(namespace+"/"+name, pin.CPUs)
		}
	}
	f := v.Facts()
	s.fixed = []struct {
		state string
		cpus  cpuset.Set
	}{
		{cpuOffline, s.m.All().Minus(s.m.Online())},
		{cpuLSE, v.LSE()},
		{cpuLSR, v.LSR()},
		{cpuKubelet, v.KubeletStatic()},
		{cpuReserved, f.NodeReserved},
		{cpuSystem, f.System},
		{cpuKubeletReserved, f.Kubelet.Reserved},
	}
	return s
}

func (s *cpuStates) cpu(c topo.CPU) cpuView {
	out := cpuView{CPU: s.m.CPUID(c), State: cpuFree, Pods: s.holders[int(c)]}
	if len(out.Pods) > 1 {
		out.State = cpuTwice
		return out
	}
	for _, f := range s.fixed {
		if f.cpus.Has(int(c)) {
			out.State = f.state
			return out
		}
	}
	return out
}

// socket lists the NUMA nodes that have cores on the socket; one that spans sockets appears under each with its part.
func (s *cpuStates) socket(socket topo.Socket) socketView {
	out := socketView{Socket: s.m.SocketID(socket), NUMA: []numaView{}}
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

func (s *cpuStates) numa(n topo.NUMA, socket topo.Socket) numaView {
	cpus := s.m.NUMACPUs(n)
	free := s.v.Allocatable().Intersect(cpus)
	out := numaView{
		Node: s.m.NUMAID(n), Distances: []int{}, Cores: []coreView{}, Free: free.Len(),
		SharedPool:   s.m.FormatList(s.v.SharedPool().Intersect(cpus)),
		BESharedPool: s.m.FormatList(s.v.BEPool().Intersect(cpus)),
	}
	s.memory.fill(&out)
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

func (s *cpuStates) core(c topo.Core) coreView {
	cpus := s.m.CoreCPUs(c)
	out := coreView{Core: s.m.CoreID(cpus[0]), L3: int(s.m.CoreL3(c))}
	if kind := s.m.KindOf(cpus[0]); kind != topo.Uniform {
		out.Kind = kind.String()
	}
	for _, cpu := range cpus {
		out.CPUs = append(out.CPUs, s.cpu(cpu))
	}
	return out
}

// milliCPU is the pod's CPU request as the scheduler counts it.
func milliCPU(p *corev1.Pod) int64 {
	requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
	return requests.Cpu().MilliValue()
}

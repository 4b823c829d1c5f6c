package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
)

// node is one kubelet's managers on one machine.
type node struct {
	machine     *machine
	withDevices bool

	topology topologymanager.Manager
	cpu      cpumanager.Manager
	memory   memorymanager.Manager
	devices  *devicemanager.ManagerImpl // nil where it does not run
	plugins  map[string]*devicePlugin
	// Containers of pods as the managers look them up when one is removed.
	cpuContainers, memoryContainers containermap.ContainerMap

	active []*v1.Pod
	dir    string
	cap    float64
	single bool // policy single-numa-node
	trace  bool
	merge  merge
}

// merge is what the providers answered since the merge began.
type merge struct {
	combinations, most float64
	lists              map[string][]offer
	all                []map[string][]offer // by merge
	last               string
	prefer             map[string]map[string][]share // by container and resource
}

// ready is a source of pods that has delivered all of them.
type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

// statuses knows no pod.
type statuses struct{}

func (statuses) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// noRuntime is a container runtime that no manager has a reason to call.
type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// tooMany ends an admission whose merge would take too long.
type tooMany struct{}

// start builds the managers in the order of the kubelet's container manager and starts them.
func start(m *machine, withDevices bool) (*node, error) {
	base := scratch
	if !withDevices {
		base = os.TempDir()
	}
	dir, err := os.MkdirTemp(base, "oracle-")
	if err != nil {
		return nil, err
	}
	n := &node{machine: m, withDevices: withDevices, dir: dir, cap: m.Cap, trace: m.Trace}
	n.single = m.TopologyPolicy == topologymanager.PolicySingleNumaNode
	if err := n.build(); err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// restart ends the managers and builds them anew over the checkpoints that they left.
func (n *node) restart() error {
	if n.devices != nil {
		stopDevices(n.devices)
	}
	return n.build()
}

func (n *node) build() error {
	m := n.machine
	info := machineInfo(m)
	n.plugins = map[string]*devicePlugin{}
	n.cpuContainers, n.memoryContainers = containermap.NewContainerMap(), containermap.NewContainerMap()
	var err error
	if n.topology, err = newTopologyManager(m, info); err != nil {
		return fmt.Errorf("topology manager: %w", err)
	}
	specific, err := cpuset.Parse(m.ReservedIDs)
	if err != nil {
		return fmt.Errorf("reservedIDs: %w", err)
	}
	reservation := v1.ResourceList{}
	milli := m.ReservedCPU
	if specific.Size() > 0 {
		milli = int64(specific.Size()) * 1000
	}
	if milli > 0 {
		reservation[v1.ResourceCPU] = *resource.NewMilliQuantity(milli, resource.DecimalSI)
	}
	var perNode []kubeletconfig.MemoryReservation
	for _, z := range m.NUMA {
		limits := v1.ResourceList{}
		for name, bytes := range z.Reserved {
			q := *resource.NewQuantity(bytes, resource.BinarySI)
			limits[v1.ResourceName(name)] = q
			sum := reservation[v1.ResourceName(name)]
			sum.Add(q)
			reservation[v1.ResourceName(name)] = sum
		}
		if len(limits) > 0 {
			perNode = append(perNode, kubeletconfig.MemoryReservation{NumaNode: int32(z.ID), Limits: limits})
		}
	}
	if n.withDevices {
		if n.devices, err = newDeviceManager(info, n.topology); err != nil {
			return fmt.Errorf("device manager: %w", err)
		}
		addProvider(n.topology, &watched{HintProvider: n.devices, node: n})
	}
	if n.cpu, err = newCPUManager(m, info, specific, reservation, n.dir, n.topology); err != nil {
		return fmt.Errorf("CPU manager: %w", err)
	}
	addProvider(n.topology, &watched{HintProvider: n.cpu, node: n})
	if n.memory, err = newMemoryManager(m, info, reservation, perNode, n.dir, n.topology); err != nil {
		return fmt.Errorf("memory manager: %w", err)
	}
	addProvider(n.topology, &watched{HintProvider: n.memory, node: n, closes: true})

	if err := n.startCPU(); err != nil {
		return fmt.Errorf("start CPU manager: %w", err)
	}
	if err := startMemory(n.memory, n.pods, n.memoryContainers); err != nil {
		return fmt.Errorf("start memory manager: %w", err)
	}
	if n.devices == nil {
		return nil
	}
	return n.startDevices(m.Devices)
}

// startCPU starts the CPU manager and ends its reconciler at its first look at the pods: it would go on for ever in the
// background, and what it does happens on every admission too.
func (n *node) startCPU() error {
	var once sync.Once
	ended := make(chan struct{})
	starting := true
	pods := func() []*v1.Pod {
		if starting {
			once.Do(func() { close(ended) })
			runtime.Goexit()
		}
		return n.active
	}
	if err := startCPU(n.cpu, pods, n.cpuContainers); err != nil {
		return err
	}
	if n.cpu.State() != nil && !n.cpu.GetAllocatableCPUs().IsEmpty() {
		<-ended
	}
	starting = false
	return nil
}

func (n *node) startDevices(all []device) error {
	if err := startDevices(n.devices, n.pods); err != nil {
		return fmt.Errorf("start device manager: %w", err)
	}
	registered := map[string][]*pluginapi.Device{}
	for _, d := range all {
		p := &pluginapi.Device{ID: d.ID, Health: pluginapi.Healthy}
		if d.Unhealthy {
			p.Health = pluginapi.Unhealthy
		}
		if len(d.Nodes) > 0 {
			p.Topology = &pluginapi.TopologyInfo{}
			for _, id := range d.Nodes {
				p.Topology.Nodes = append(p.Topology.Nodes, &pluginapi.NUMANode{ID: int64(id)})
			}
		}
		registered[d.Resource] = append(registered[d.Resource], p)
	}
	for name, list := range registered {
		n.plugins[name] = &devicePlugin{resource: name, stubborn: n.machine.Stubborn, nodes: map[string][]int{}}
		for _, d := range all {
			n.plugins[name].nodes[d.ID] = slices.Sorted(slices.Values(d.Nodes))
		}
		if err := connect(n.devices, name, n.plugins[name]); err != nil {
			return fmt.Errorf("connect %s: %w", name, err)
		}
		listed(n.devices, name, &pluginapi.ListAndWatchResponse{Devices: list})
	}
	return nil
}

func (n *node) pods() []*v1.Pod { return n.active }

func (n *node) stop() {
	if n.devices != nil {
		stopDevices(n.devices)
		_ = os.RemoveAll(filepath.Clean(pluginapi.DevicePluginPath))
	}
	_ = os.RemoveAll(n.dir)
}

// machineInfo is what cAdvisor reports of a machine. A cache with as many CPUs as the core's node would have if all its
// cores were like this one is a cache of the node for it, and the kubelet does not look at those.
func machineInfo(m *machine) *machineReport {
	info := &machineReport{NumSockets: m.Sockets}
	sharing := map[int]int{}
	for _, z := range m.NUMA {
		for _, c := range z.Cores {
			sharing[c.L3] += len(c.Threads)
		}
	}
	for _, z := range m.NUMA {
		node := nodeReport{Id: z.ID, Memory: uint64(z.Memory), Distances: z.Distances}
		for _, size := range slices.Sorted(maps.Keys(z.Hugepages)) {
			node.HugePages = append(node.HugePages,
				pagesReport{PageSize: uint64(size), NumPages: uint64(z.Hugepages[size])})
		}
		for _, c := range z.Cores {
			core := coreReport{Id: c.ID, SocketID: c.Socket, Threads: c.Threads}
			if c.L3 >= 0 && sharing[c.L3] != len(z.Cores)*len(c.Threads) {
				core.UncoreCaches = []cacheReport{{Id: c.L3, Level: 3}}
			}
			node.Cores = append(node.Cores, core)
			info.NumCores += len(c.Threads)
			info.NumPhysicalCores++
		}
		info.Topology = append(info.Topology, node)
	}
	return info
}

// admit is one admission as the kubelet does it: the pod is active from before the topology manager is asked, and no
// longer once it is refused.
func (n *node) admit(r *admission) (a answer) {
	p := r.Pod
	// The managers append app containers to the init containers' slice: it must have no room to share.
	p.Spec.InitContainers = slices.Clip(p.Spec.InitContainers)
	n.merge = merge{combinations: 1, prefer: r.Prefer}
	if !r.Again {
		n.active = append(n.active, p)
	}
	uid := string(p.UID)
	a.QoS = string(v1qos.GetPodQOS(p))
	defer func() {
		a.Combinations, a.Hints, a.Last = n.merge.most, n.merge.all, n.merge.last
		switch r := recover().(type) {
		case nil:
		case tooMany:
			a.Capped = true
			n.delete(uid)
		default:
			a.Panic = fmt.Sprintf("%v\n%s", r, debug.Stack())
		}
	}()
	result := admitTo(n.topology, p)
	a.Admitted, a.Reason, a.Message = result.Admit, result.Reason, result.Message
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		a.Containers = append(a.Containers, n.given(uid, c.Name))
	}
	if !result.Admit {
		n.delete(uid)
	}
	return a
}

func (n *node) given(uid, name string) given {
	g := given{Name: name}
	hint := affinityOf(n.topology, uid, name)
	if hint.NUMANodeAffinity != nil {
		g.Mask = hint.NUMANodeAffinity.GetBits()
	}
	g.Preferred = hint.Preferred
	if set := n.cpu.GetExclusiveCPUs(uid, name); !set.IsEmpty() {
		g.CPUs = set.String()
	}
	for _, b := range blocksOf(n.memory, uid, name) {
		g.Memory = append(g.Memory, block{
			Type: string(b.Type), Nodes: slices.Sorted(slices.Values(b.NUMAAffinity)),
			Bytes: int64(b.Size),
		})
	}
	slices.SortFunc(g.Memory, func(a, b block) int { return strings.Compare(a.Type, b.Type) })
	if n.devices != nil {
		for resource, list := range n.devices.GetDevices(uid, name) {
			if g.Devices == nil {
				g.Devices = map[string][]string{}
			}
			g.Devices[resource] = slices.Sorted(maps.Keys(list))
		}
	}
	return g
}

// delete takes a pod off and releases what it has, container by container in spec order. The kubelet releases in the
// order of a Go map, which matters where a node's memory is in two groups at once.
func (n *node) delete(uid string) {
	i := slices.IndexFunc(n.active, func(p *v1.Pod) bool { return string(p.UID) == uid })
	if i < 0 {
		return
	}
	p := n.active[i]
	n.active = slices.Delete(n.active, i, i+1)
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		id := uid + "/" + c.Name
		n.cpuContainers.Add(uid, c.Name, id)
		n.memoryContainers.Add(uid, c.Name, id)
		remove(n.cpu, n.memory, id)
	}
	if n.devices != nil {
		releaseDevices(n.devices)
	}
}

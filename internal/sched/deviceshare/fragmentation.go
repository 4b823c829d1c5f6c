package deviceshare

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/occupancy"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
)

// fragments is how much of the free GPUs of a node, or of all nodes with a model, pods cannot use. Amounts are in
// thousandths of a GPU.
type fragments struct {
	// Node is the name of the node. It is empty for the sum over all nodes with the model.
	Node string `json:"node,omitempty"`
	// Model is the model of the GPUs: that of the first GPU on a node with several models.
	Model string `json:"model"`
	// GPUs counts the GPUs that Tenon allocates, free or not.
	GPUs int `json:"gpus"`
	// Free is the sum of what pods may still have.
	Free int64 `json:"freeMilli"`
	// Lost is the part of Free that an expected pod cannot use, on the average over the demand: FGD's measure.
	Lost int64 `json:"fragmentationMilli"`
	// Stranded are free GPUs that no pod of whole GPUs and no share can use: see occupancy.Load.
	Stranded []occupancy.Stranded `json:"stranded"`
}

// survey reads the scheduler's cache beside its cycles, for metrics and endpoints, with a snapshot of its own. It is
// safe for concurrent use. A nil survey finds no node.
type survey struct {
	// store has the accounts of devices.
	store *kube.Store
	// learner has the demand by which free GPUs are valued.
	learner *learner

	mu sync.Mutex // guards everything below
	// snapshot is the nodes of the scheduler's cache. It is brought up to date before each answer.
	snapshot *snapshot.Copy
	// known has what the last look at all nodes found, by node, so that an unchanged node costs nothing.
	known map[string]load
}

// load is the load of a node's GPUs. It is valid while the account and the node's other room are the same.
type load struct {
	// account is the account of devices from which the load was computed. It never changes: another one is another
	// version.
	account *ledger.View
	// room is what the node had free then beside its GPUs, and why new pods could not use it.
	room occupancy.Room
	occupancy.Load
}

// Survey gives p a survey of the nodes in a cache. It must be called before the first question.
func (p *Plugin) Survey(c snapshot.Cache) {
	p.survey = &survey{
		store: p.Store(), learner: p.learner, snapshot: snapshot.NewCopy(c), known: map[string]load{},
	}
}

// node returns a copy of a node; nil where it is not known.
func (s *survey) node(name string) fwk.NodeInfo {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.snapshot.Update(klog.Background()); err != nil {
		return nil
	}
	n, err := s.snapshot.Get(name)
	if err != nil || n.Node() == nil {
		return nil
	}
	return n.Snapshot()
}

// nodes returns the fragments of each node with GPUs, sorted by name. The learner does not count it as an arrival.
func (s *survey) nodes() (list []fragments) {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.snapshot.Update(klog.Background()); err != nil {
		return nil // the cache is broken: the next cycle of the scheduler reports it
	}
	infos, _ := s.snapshot.List() // never fails
	before := s.known
	s.known = map[string]load{}
	type equal struct { // nodes without pods whose load is the same
		account ledger.Idle
		room    occupancy.Room
	}
	loads := map[equal]occupancy.Load{}
	for _, n := range infos {
		name := n.Node().Name
		v := s.store.Known(name)
		if v == nil || v.Devices() == nil {
			continue
		}
		l, free, used := before[name], n.GetAllocatable(), n.GetRequested()
		room := occupancy.Room{
			MilliCPU: free.GetMilliCPU() - used.GetMilliCPU(), MemoryBytes: free.GetMemory() - used.GetMemory(),
			Pods:   int64(free.GetAllowedPodNumber() - len(n.GetPods())),
			Closed: convert.NodeHealth(n.Node()).Closed,
		}
		if l.account != v || l.room != room {
			account, idle := v.Idle()
			shared, known := loads[equal{account, room}]
			if l = (load{v, room, shared}); !idle || !known {
				l.Load, _ = occupancy.Of(v, room)
			}
			if idle {
				loads[equal{account, room}] = l.Load
			}
		}
		if s.known[name] = l; l.GPUs == 0 {
			continue
		}
		f := fragments{Node: name, Model: l.Model, GPUs: l.GPUs, Stranded: l.Stranded}
		f.Free, f.Lost = s.learner.lost(v, room.MilliCPU)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b fragments) int { return cmp.Compare(a.Node, b.Node) })
	return list
}

// Lost returns how much of a node's free GPUs expected pods cannot use, in milli; false for a node without GPUs. It may
// be called on a nil Plugin.
func (p *Plugin) Lost(v *ledger.View, milliCPU int64) (int64, bool) {
	if p == nil || v.Devices() == nil || len(gpusIn(v).ids) == 0 {
		return 0, false
	}
	_, lost := p.learner.lost(v, milliCPU)
	return lost, true
}

// lost returns what is free of a node's GPUs and how much of that expected pods cannot use: pods like
// all that have arrived, also since the generation in force was computed, which takes dozens of arrivals.
// Both amounts are in thousandths of a GPU.
func (l *learner) lost(v *ledger.View, milliCPU int64) (free, lost int64) {
	g := gpusIn(v)
	for _, milli := range g.free {
		free += milli
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		return free, 0
	}
	model, known := l.models[g.name]
	if !known {
		model = lastModel
	}
	s := fragment.State{MilliCPU: milliCPU, Free: g.free, Model: model}
	if l.asked == nil {
		l.asked = l.demand.Specs()
	}
	return free, fragment.Lost(l.asked, s) * fragment.Whole / 1_000_000
}

// byModel adds up the fragments of nodes by model, sorted by model, and those that are stranded by cause.
func byModel(nodes []fragments) (list []fragments) {
	models, causes := map[string]fragments{}, map[string]map[string]int{}
	for _, n := range nodes {
		sum := models[n.Model]
		sum.Model, sum.GPUs, sum.Free, sum.Lost = n.Model, sum.GPUs+n.GPUs, sum.Free+n.Free, sum.Lost+n.Lost
		if models[n.Model] = sum; causes[n.Model] == nil {
			causes[n.Model] = map[string]int{}
		}
		for _, s := range n.Stranded {
			causes[n.Model][s.Cause] += s.GPUs
		}
	}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		sum := models[model]
		sum.Stranded = []occupancy.Stranded{}
		for _, cause := range slices.Sorted(maps.Keys(causes[model])) {
			sum.Stranded = append(sum.Stranded, occupancy.Stranded{Cause: cause, GPUs: causes[model][cause]})
		}
		list = append(list, sum)
	}
	return list
}

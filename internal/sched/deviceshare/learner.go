package deviceshare

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/fragment"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/memo"
)

const (
	// remembered is the number of bound pods that are learnt from at the start: earlier ones would weigh nothing.
	remembered = 20_000
	// countedKept bounds the pods that are known to have been counted; it is above the number of those that wait.
	countedKept = 1 << 16
	// valuesKept bounds the values that a generation remembers.
	valuesKept = 1 << 16
	// lastModel is the number of all models beyond those that fragment has numbers for.
	lastModel fragment.Model = 63
)

// learner values the free GPUs of nodes by what pods ask for. All profiles share one. All methods may be called from
// any goroutine.
type learner struct {
	// once runs recall, which learns from the pods that are bound already.
	once sync.Once
	// nodes has the *gpus of each node as read last. It is emptied with each generation, so that nodes that are gone
	// are dropped.
	nodes sync.Map

	// counted has the UIDs of pods that were counted: a pod that is tried again does not count again.
	counted *lru.Cache

	mu sync.Mutex // guards everything below
	// demand counts the arrivals by what they ask for; older ones weigh less.
	demand *fragment.Histogram
	// asked has the specs of demand. nil until they are read again after an arrival.
	asked []fragment.Weighted
	// latest is the generation in force. nil before the first pod is scored.
	latest *generation
	// next yields the generation that is being computed; nil if there is none.
	next <-chan *generation
	// left is how many arrivals later next is put in force. A count, and not the end of the computation, decides, so
	// that equal arrivals give equal placements on fast and slow machines.
	left int
	// models numbers the models of GPUs in the order in which they are met. Models beyond lastModel share that number.
	models map[string]fragment.Model
	// reachable has the models of the GPUs on the nodes that pods with a given selector may use, by selector. It is
	// emptied with nodes.
	reachable map[string]fragment.Models
	// unit has the amounts of the GPU with the most memory. Requests in bytes are compared with it.
	unit device.Vector
}

// generation is a table of values with its number, from 1. Caches of scores are void when the number has changed.
type generation struct {
	*fragment.Generation
	// number counts the tables that came into force. It never falls.
	number uint64
}

// newLearner returns a learner that has counted no pod.
func newLearner() *learner {
	return &learner{
		counted: lru.New(countedKept), demand: fragment.NewHistogram(), models: map[string]fragment.Model{},
		reachable: map[string]fragment.Models{}, unit: device.Vector{device.Cores: 100, device.Bytes: 100},
	}
}

// first reports whether a pod is at its first attempt, and marks it as counted.
func (l *learner) first(uid types.UID) bool {
	_, again := l.counted.Get(uid)
	if !again {
		l.counted.Add(uid, nil)
	}
	return !again
}

// learn counts a pod. If a new generation is due, it is computed in a goroutine while the last one answers, from what
// free returns now. It is in force after a fixed number of arrivals, so that equal arrivals give equal answers.
func (l *learner) learn(s fragment.Spec, free func() fragment.Supply) {
	last, specs, notice := l.count(s)
	if last == nil {
		return
	}
	supply, ready := free(), make(chan *generation, 1)
	go func() {
		g := newGeneration(specs, supply, last.number+1)
		// Values that the last generation was asked for are computed beforehand.
		g.Renew(last.Generation)
		ready <- g
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.left = ready, notice
}

// count counts a pod, and puts the next generation in force if its time has come; if it is not ready, count waits. If a
// new one is due, count returns the last one, the specs of the new one, and the number of arrivals until it is in
// force.
func (l *learner) count(s fragment.Spec) (last *generation, specs []fragment.Weighted, notice int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.demand.Count(s)
	l.asked = nil
	if l.next != nil {
		if l.left--; l.left == 0 {
			l.latest, l.next = <-l.next, nil
			l.nodes.Clear() // of nodes that are gone, too
			clear(l.reachable)
		}
	}
	if due && l.latest != nil {
		return l.latest, l.demand.Specs(), l.demand.Notice()
	}
	return nil, nil, 0
}

// newGeneration returns values for pods like specs in a cluster that has this much free of each model.
func newGeneration(specs []fragment.Weighted, free fragment.Supply, number uint64) *generation {
	values, err := fragment.New(specs, free, fragment.Standard(), memo.New[fragment.Shape, int64](valuesKept))
	if err != nil {
		panic(err) // demandOf makes no other specs than valid ones
	}
	return &generation{values, number}
}

// begin creates the first generation from what has been learnt and what the cluster has free. It does nothing if there
// is one already.
func (l *learner) begin(free fragment.Supply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		l.latest = newGeneration(l.demand.Specs(), free, 1)
	}
}

// current returns the generation in force. Before begin it creates one for an unknown cluster.
func (l *learner) current() *generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.latest == nil {
		l.latest = newGeneration(l.demand.Specs(), fragment.Supply{}, 1)
	}
	return l.latest
}

// inForce is current, but returns nil if there is none yet.
func (l *learner) inForce() *generation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// reach returns the models for a key, which compute determines at most once in each generation. compute may call any
// method, as no lock is held meanwhile; of two results that are computed at once the last one remains.
func (l *learner) reach(key string, compute func() fragment.Models) fragment.Models {
	l.mu.Lock()
	models, known := l.reachable[key]
	l.mu.Unlock()
	if known {
		return models
	}
	models = compute()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reachable) < countedKept {
		l.reachable[key] = models
	}
	return models
}

// demandOf returns the spec by which a pod counts. models are those that the pod's node selection allows, 0 for all; a
// hint for a model in the request restricts them further. Memory in bytes is compared with the largest GPU, as the node
// is not known yet.
func (l *learner) demandOf(r *device.Request, milliCPU int64, models fragment.Models) fragment.Spec {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := specOf(r, milliCPU, &l.unit)
	if s.GPUs == 0 {
		return s
	}
	var hinted fragment.Models
	for _, term := range r.Hints[device.GPU].Selector {
		if term.Key == annotation.GPUModelLabel && term.Operator == device.In {
			hinted |= l.named(term.Values)
		}
	}
	switch {
	case hinted == 0:
		s.Models = models
	case hinted&models == 0:
		s.Models = hinted
	default:
		s.Models = hinted & models
	}
	return s
}

// named returns the models that a label has one of the values for. The caller holds mu.
func (l *learner) named(values []string) (set fragment.Models) {
	for name, model := range l.models { // which begins with the vendor
		if slices.ContainsFunc(values, func(v string) bool {
			return v != "" && (name == v || strings.HasSuffix(name, "-"+v))
		}) {
			set |= fragment.ModelsOf(model)
		}
	}
	return set
}

// specOf returns what a pod asks of a node whose GPUs are like unit. Containers that run at the same time add up, but
// may share a GPU; an init container counts only if it asks for more than all of these. Slices of a MIG profile do not
// count.
func specOf(r *device.Request, milliCPU int64, unit *device.Vector) fragment.Spec {
	s := fragment.Spec{MilliCPU: max(milliCPU, 0)}
	if r == nil {
		return s
	}
	together, first := int64(0), int64(0) // milli of containers that run at one time; of an init container
	for i := range r.Parts {
		p := &r.Parts[i]
		if p.Type != device.GPU || p.Need.Profile != "" {
			continue
		}
		s.GPUs = min(max(s.GPUs, p.Count), fragment.MaxGPUs)
		asked := milliOf(p.Need.Of(unit), unit) * min(p.Count, fragment.MaxGPUs)
		if p.Role == device.Init {
			first = max(first, asked)
		} else {
			together += asked
		}
	}
	if s.GPUs > 0 {
		together = max(together, first)
		s.GPUs = min(max(s.GPUs, (together+fragment.Whole-1)/fragment.Whole), fragment.MaxGPUs)
		s.Milli = min(max(together/s.GPUs, 1), fragment.Whole)
	}
	return s
}

// milliOf returns an amount of a GPU in thousandths, rounded down: the larger of the shares of cores and of memory.
func milliOf(v device.Vector, total *device.Vector) int64 {
	return max(milli(v[device.Cores], total[device.Cores]), milli(v[device.Bytes], total[device.Bytes]))
}

// milli returns n of total in thousandths, at most fragment.Whole. A total of 0 counts as all in use.
func milli(n, total int64) int64 {
	if n >= total {
		return fragment.Whole
	}
	return fragment.Whole * n / total
}

// gpus are the GPUs of a node that Tenon allocates, as one account has them. ids and free have an element for each. A
// value is never changed after it is stored.
type gpus struct {
	// account is the one that the GPUs were read from. nil for a node whose GPUs Tenon does not allocate.
	account *device.View
	// ids are the IDs of the GPUs, in the order of the Device object.
	ids []string
	// free is what is left of each GPU, in thousandths of a GPU: the scarcer of cores and memory.
	free []int64 // milli
	name string  // of the model of the first of them
	// model is the number of the model. A node with GPUs of several models counts as one of the first.
	model fragment.Model
	unit  device.Vector // the first of them
}

// gpusOf returns the GPUs of a node. It reads the account only if it is another one than at the last call.
func (l *learner) gpusOf(node string, v *ledger.View) *gpus {
	if v.Devices() == nil || !v.Facts().OwnDevices {
		return &gpus{}
	}
	if known, ok := l.nodes.Load(node); ok && known.(*gpus).account == v.Devices() {
		return known.(*gpus)
	}
	g := gpusIn(v)
	if len(g.ids) > 0 {
		g.model = l.meet(g.name, &g.unit)
	}
	l.nodes.Store(node, g)
	return g
}

// gpusIn returns the GPUs of a node that Tenon gives out, without the number of their model.
func gpusIn(v *ledger.View) *gpus {
	g := &gpus{}
	if v.Devices() == nil || !v.Facts().OwnDevices {
		return g
	}
	g.account = v.Devices()
	ids, free := make([]string, 0, device.MaxDevices), make([]int64, 0, device.MaxDevices) // on the stack
	for d := range g.account.Devices() {
		if d.Type != device.GPU || d.Profile != "" || !d.Offered {
			continue
		}
		if len(ids) == 0 {
			g.unit, g.name = d.Total, d.Model
		}
		ids = append(ids, d.ID)
		free = append(free, min(milli(d.Free[device.Cores], d.Total[device.Cores]),
			milli(d.Free[device.Bytes], d.Total[device.Bytes])))
	}
	g.ids, g.free = slices.Clone(ids), slices.Clone(free)
	return g
}

// meet returns the number of a model, and assigns one if the model is new. unit has the amounts of a GPU of the model.
func (l *learner) meet(model string, unit *device.Vector) fragment.Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unit[device.Bytes] < unit[device.Bytes] {
		l.unit = *unit
	}
	number, known := l.models[model]
	if !known {
		number = min(fragment.Model(len(l.models)), lastModel)
		l.models[model] = number
	}
	return number
}

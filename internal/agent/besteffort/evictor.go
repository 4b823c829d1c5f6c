package besteffort

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/suppress"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Cause is why pods are evicted.
type Cause string

// Causes, which are also values of a metric's label.
const (
	Memory          Cause = "memory"
	CPUSatisfaction Cause = "cpu-satisfaction"
	DeviceMemory    Cause = "device-memory"
)

// feature is how Koordinator's annotation eviction-policy calls a cause.
func (c Cause) feature() string {
	if c == CPUSatisfaction {
		return "BECPUEvict"
	}
	return "BEMemoryEvict"
}

// Eviction is a pod that is to be evicted.
type Eviction struct {
	Pod   *corev1.Pod
	Cause Cause
	// Why is what people read of it.
	Why string
}

// EvictorOptions are what an Evictor needs.
type EvictorOptions struct {
	Agent     Agent
	Limit     Limit
	Evictions Evictions
}

// Limit returns what best-effort pods may use now, as a Suppressor does.
type Limit interface{ State() State }

// Evictions evicts pods, and reports that one could not be evicted.
type Evictions interface {
	Evict(context.Context, Eviction) error
	NotEvicted(context.Context, Eviction, error)
}

// Evictor evicts best-effort pods of a node. Run does, once; the other methods are safe for concurrent use.
type Evictor struct {
	o    EvictorOptions
	work chan []Eviction // holds at most one list, which Run has not begun

	mu       sync.Mutex // guards the fields below; never held across Evict
	strategy *slo.ResourceThresholdStrategy
	measured time.Time // of the last sample
	low      suppress.Lasting
	isBusy   bool // Run has a list
	// evicted is when pods were evicted that the API still has, by UID, quiet when the last of them went or could not
	// be evicted.
	evicted map[string]time.Time
	quiet   time.Time
}

// NewEvictor returns an Evictor that knows no NodeSLO yet, and evicts nothing.
func NewEvictor(o EvictorOptions) *Evictor {
	return &Evictor{o: o, work: make(chan []Eviction, 1), evicted: map[string]time.Time{}}
}

// Follow takes the node's NodeSLO; nil for none. A bound that is not set evicts nothing.
func (e *Evictor) Follow(object *slo.NodeSLO) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.strategy = thresholdsOf(object)
}

// Run evicts the pods that Tick chooses, until ctx ends. It returns nil then.
func (e *Evictor) Run(ctx context.Context) error {
	for {
		select {
		case list := <-e.work:
			e.evict(ctx, list)
		case <-ctx.Done():
			return nil
		}
	}
}

// patience bounds one eviction.
const patience = 5 * time.Second

func (e *Evictor) evict(ctx context.Context, list []Eviction) {
	var errs []error
	gone := map[string]bool{}
	for _, v := range list {
		call, cancel := context.WithTimeout(ctx, patience)
		err := e.o.Evictions.Evict(call, v)
		cancel()
		if gone[string(v.Pod.UID)] = err == nil; err != nil {
			e.o.Evictions.NotEvicted(ctx, v, err)
		}
		errs = append(errs, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, evicted := range gone {
		if evicted {
			e.evicted[uid] = e.measured
		}
	}
	if errors.Join(errs...) != nil {
		e.quiet = e.measured
	}
	e.isBusy, e.low = false, suppress.Lasting{}
}

const (
	// settling is how long nothing is decided after pods have gone, or could not be evicted: the memory of a pod is
	// measured as often.
	settling = 5 * time.Second
	// overdue is how long after the end of its grace period a pod still counts as one that leaves.
	overdue = 30 * time.Second
	// critical is the lowest priority of pods that a node cannot do without.
	critical = 2_000_000_000
)

// Tick takes a measurement and chooses the pods to evict. One that was taken before has no effect.
func (e *Evictor) Tick(sample *usage.Sample) {
	e.mu.Lock()
	defer e.mu.Unlock()
	again := sample.Time.Equal(e.measured)
	e.measured = sample.Time
	if e.strategy == nil || again || e.isBusy {
		return
	}
	if len(e.evicted) > 0 {
		e.forgetGone()
	}
	if since := sample.Time.Sub(e.quiet); since >= 0 && since < settling {
		return
	}
	list := e.forMemory(sample)
	if len(list) == 0 {
		list = e.forCPU(sample)
	}
	if len(list) > 0 {
		e.isBusy = true
		e.work <- list
	}
}

// Overuse is a pod that uses more of a device's memory than it was allocated.
type Overuse struct {
	Device string
	Pod    *corev1.Pod
	// Used and Allocated are in bytes.
	Used, Allocated int64
}

// EvictOverusers evicts best-effort pods among those that use more than they were allocated: of each device one, the
// first in the order of evictions, and none while another one of them leaves. It needs no NodeSLO.
func (e *Evictor) EvictOverusers(now time.Time, list []Overuse) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isBusy {
		return
	}
	e.measured = now
	e.forgetGone()
	pods, over := map[string][]suppress.Pod{}, map[string]Overuse{}
	for _, o := range list {
		class, _, _ := convert.PodQoS(o.Pod)
		if class != qos.BE || convert.Ended(o.Pod) {
			continue
		}
		p := e.candidate(o.Pod)
		p.Used, p.Requested = o.Used, o.Allocated
		if p.IsLeaving || mayEvict(o.Pod, DeviceMemory) {
			p.Frees = o.Used - o.Allocated
		}
		pods[o.Device], over[o.Device+"/"+p.UID] = append(pods[o.Device], p), o
	}
	var work []Eviction
	chosen := map[string]bool{}
	for _, device := range slices.Sorted(maps.Keys(pods)) {
		for _, p := range suppress.Victims(pods[device], 1) {
			if o := over[device+"/"+p.UID]; !chosen[p.UID] {
				chosen[p.UID] = true
				work = append(work, Eviction{Pod: o.Pod, Cause: DeviceMemory, Why: fmt.Sprintf(
					"the pod uses %d MiB of the memory of %s, and %d MiB are allocated to it", o.Used>>20, device,
					o.Allocated>>20)})
			}
		}
	}
	if len(work) > 0 {
		e.isBusy = true
		e.work <- work
	}
}

// forgetGone forgets evicted pods that the API does not have any more. The caller holds mu, here and below.
func (e *Evictor) forgetGone() {
	pods, known := e.o.Agent.Evictable()
	if !known {
		return
	}
	here := map[string]bool{}
	for _, pod := range pods {
		here[string(pod.UID)] = !convert.Ended(pod)
	}
	for uid := range e.evicted {
		if !here[uid] {
			delete(e.evicted, uid)
			e.quiet = e.measured
		}
	}
}

// forMemory chooses pods for the memory that the node uses.
func (e *Evictor) forMemory(sample *usage.Sample) []Eviction {
	from := or(e.strategy.MemoryEvictThresholdPercent, 0)
	b := suppress.Bounds{FromPercent: from, ToPercent: or(e.strategy.MemoryEvictLowerPercent, from-2)}
	over := fmt.Sprintf("at or above %d %%", from)
	b, isEarly := b.Early(sample.MemoryPressure)
	if isEarly {
		over = fmt.Sprintf("and all tasks waited for memory in %d %% of 10 s", sample.MemoryPressure/100)
	}
	used, capacity := sample.Node.MemoryBytes, sample.Capacity.MemoryBytes
	need := suppress.Excess(used, capacity, b)
	if need == 0 {
		return nil
	}
	pods, byUID := e.pods(sample, Memory)
	why := fmt.Sprintf("the node uses %d %% of its memory, %s: best-effort pods are evicted until it is %d %%",
		percent(used, capacity), over, max(b.ToPercent, 0))
	return evictions(suppress.Victims(pods, need), byUID, Memory, func(p suppress.Pod) string {
		return fmt.Sprintf("%s; this pod uses %d MiB and requests %d MiB", why, p.Used>>20, p.Requested>>20)
	})
}

// Defaults of a NodeSLO.
const (
	usageThreshold int64 = 90 // percent
	lowWindow      int64 = 60 // seconds
)

// forCPU chooses pods because best-effort pods may use too little of the CPU that they request.
func (e *Evictor) forCPU(sample *usage.Sample) []Eviction {
	b := suppress.Bounds{
		FromPercent: or(e.strategy.CPUEvictBESatisfactionLowerPercent, 0),
		ToPercent:   or(e.strategy.CPUEvictBESatisfactionUpperPercent, 0),
	}
	state := e.o.Limit.State()
	allowed := max(int64(state.CPUs)*1000, state.Quota/100)
	if e.strategy.CPUEvictPolicy == slo.EvictByAllocatable {
		allowed = e.o.Agent.BatchMilli()
	} else if state.Of == 0 {
		return nil // what they may use is not known
	}
	if b.FromPercent <= 0 || b.ToPercent <= 0 {
		return nil
	}
	pods, byUID := e.pods(sample, CPUSatisfaction)
	var used, requested int64
	for _, p := range pods {
		used += p.Used
		requested += p.Requested
	}
	need := suppress.Short(requested, allowed, used, or(e.strategy.CPUEvictBEUsageThresholdPercent, usageThreshold), b)
	window := time.Duration(or(e.strategy.CPUEvictTimeWindowSeconds, lowWindow)) * time.Second
	if !e.low.For(window, sample.Time, need > 0) {
		return nil
	}
	why := fmt.Sprintf("for %s best-effort pods may use less than %d %% of the CPU that they request, now %dm of %dm: "+
		"they are evicted until it is %d %%", window, b.FromPercent, allowed, requested, b.ToPercent)
	return evictions(suppress.Victims(pods, need), byUID, CPUSatisfaction, func(p suppress.Pod) string {
		return fmt.Sprintf("%s; this pod requests %dm and uses %dm", why, p.Requested, p.Used)
	})
}

// pods returns the best-effort pods of the node with what they use and request of what is short. Those that must not be
// evicted free nothing.
func (e *Evictor) pods(sample *usage.Sample, cause Cause) (list []suppress.Pod, byUID map[string]*corev1.Pod) {
	all, known := e.o.Agent.Evictable()
	if !known {
		return nil, nil
	}
	byUID = map[string]*corev1.Pod{}
	for _, pod := range all {
		class, _, _ := convert.PodQoS(pod)
		if class != qos.BE || convert.Ended(pod) {
			continue
		}
		p := e.candidate(pod)
		used := sample.Pods[convert.NodeUID(pod)]
		cpu, memory := convert.BestEffortRequest(pod)
		frees := used.MemoryBytes
		if p.Used, p.Requested = used.MemoryBytes, memory; cause == CPUSatisfaction {
			p.Used, p.Requested, frees = used.MilliCPU, cpu, cpu
		}
		if p.IsLeaving || mayEvict(pod, cause) {
			p.Frees = frees
		}
		byUID[p.UID], list = pod, append(list, p)
	}
	return list, byUID
}

// candidate is a pod with what orders it among others.
func (e *Evictor) candidate(pod *corev1.Pod) suppress.Pod {
	sub, _ := strconv.ParseInt(pod.Labels[annotation.Priority], 10, 32)
	p := suppress.Pod{UID: string(pod.UID), SubPriority: int32(sub), IsLeaving: e.isLeaving(pod)}
	if first, err := strconv.ParseInt(pod.Annotations[annotation.EvictionPriority], 10, 32); err == nil {
		p.EvictionPriority = int32(first)
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	return p
}

// isLeaving reports whether a pod is about to be gone without an eviction.
func (e *Evictor) isLeaving(pod *corev1.Pod) bool {
	begun := e.evicted[string(pod.UID)]
	if pod.DeletionTimestamp != nil {
		begun = pod.DeletionTimestamp.Time // the end of the grace period
	}
	return !begun.IsZero() && e.measured.Sub(begun) < overdue
}

// mayEvict reports whether a best-effort pod may be evicted: not one that is being deleted, that would be back at once
// or that the node cannot do without, and not one whose annotation names other causes.
func mayEvict(pod *corev1.Pod, cause Cause) bool {
	if pod.DeletionTimestamp != nil || pod.Annotations[corev1.MirrorPodAnnotationKey] != "" ||
		isOfDaemonSet(pod) || pod.Spec.Priority != nil && *pod.Spec.Priority >= critical {
		return false
	}
	text, limited := pod.Annotations[annotation.EvictionPolicyKey]
	if !limited {
		return true
	}
	features, _, err := annotation.ParseEvictionPolicy(text)
	return err == nil && slices.Contains(features, cause.feature())
}

func isOfDaemonSet(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

func evictions(victims []suppress.Pod, byUID map[string]*corev1.Pod, cause Cause, why func(suppress.Pod) string,
) (list []Eviction) {
	for _, p := range victims {
		list = append(list, Eviction{Pod: byUID[p.UID], Cause: cause, Why: why(p)})
	}
	return list
}

func percent(amount, total int64) int64 { return amount * 100 / max(total, 1) }

package admit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	quota "k8s.io/apiserver/pkg/quota/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	schedframework "k8s.io/kubernetes/pkg/scheduler/framework"
	kcpuset "k8s.io/utils/cpuset"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Options are the options of Open.
type Options struct {
	Machine  *topo.Machine
	Settings annotation.Kubelet
	// Dir is the kubelet's folder, which contains its state files. Open creates it.
	Dir string
	// Node returns the Node that pods must fit on. A cached one may lack labels that users added: if labels alone keep
	// a pod from the node, the current one is requested.
	Node func(ctx context.Context, cached bool) (*corev1.Node, error)
	// Update gives a running container the CPUs of a list. After an error the kubelet tries again.
	Update func(containerID, cpus string) error
	// Running are the containers that an earlier process left running; nil means none.
	Running containermap.ContainerMap
	// Reconcile is the time between two reconciliations of the CPU manager; default 10 s, as the kubelet's.
	Reconcile time.Duration
}

// Refusal is why a kubelet does not admit a pod: status.reason and status.message of the pod that fails.
type Refusal struct{ Reason, Message string }

// Panic is the error of Admit when the kubelet's code panicked. A real kubelet would end, start again and panic again.
type Panic struct{ Value any }

func (p *Panic) Error() string { return fmt.Sprintf("the kubelet's own code panicked: %v", p.Value) }

// Kubelet is the part of a kubelet that admits pods. Admit and Settled must be called by one goroutine, in the order in
// which pods arrive; all others may be called at any time.
type Kubelet struct {
	o        Options
	topology topologymanager.Manager
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	handlers []lifecycle.PodAdmitHandler
	settled  atomic.Bool
	closed   atomic.Bool
	ended    chan struct{} // closed when the managers' own goroutine has ended

	mu   sync.Mutex // guards the field below
	pods map[types.UID]record
}

// record is a pod that the kubelet counts as active. Both are immutable.
type record struct {
	pod    *corev1.Pod
	status *corev1.PodStatus
}

func discard(dir string) error {
	var errs []error
	for _, name := range []string{"cpu_manager_state", "memory_manager_state"} {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Open starts the managers. They read their earlier decisions from their state files. Open removes files that the
// managers refuse because they were written under other settings, as an administrator has to. An error says why a
// kubelet with these settings would not start on this machine.
func Open(ctx context.Context, o Options) (*Kubelet, error) {
	if o.Running == nil {
		o.Running = containermap.NewContainerMap()
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if len(o.Settings.Gates) > 0 {
		if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(o.Settings.Gates); err != nil {
			return nil, fmt.Errorf("feature gates of the kubelet: %w", err)
		}
	}
	k, err := open(ctx, o)
	if errors.Is(err, errStaleState) {
		klog.FromContext(ctx).Info("Removed the kubelet's state files, which do not match its settings", "dir",
			o.Dir, "err", err)
		if err := discard(o.Dir); err != nil {
			return nil, err
		}
		k, err = open(ctx, o)
	}
	return k, err
}

var errStaleState = errors.New("start the kubelet's managers")

func open(ctx context.Context, o Options) (k *Kubelet, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{value}
		}
	}()
	k = &Kubelet{o: o, pods: map[types.UID]record{}, ended: make(chan struct{})}
	log, info, s := klog.FromContext(ctx), machineInfo(o.Machine), o.Settings
	k.topology, err = topologymanager.NewManager(log, info.Topology,
		cmp.Or(s.Topology.Policy, topologymanager.PolicyNone),
		cmp.Or(s.Topology.Scope, topologymanager.ContainerTopologyScope), s.Topology.Options)
	if err != nil {
		return nil, fmt.Errorf("topology manager: %w", err)
	}
	reserved, err := kcpuset.Parse(s.CPU.Reserved)
	if err != nil {
		return nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	held, perNode := reservation(reserved, s.Memory.Reserved)
	k.cpus, err = cpumanager.NewManager(log, cmp.Or(s.CPU.Policy, string(cpumanager.PolicyNone)), s.CPU.Options,
		cmp.Or(o.Reconcile, 10*time.Second), info, reserved, held, o.Dir, k.topology)
	if err != nil {
		return nil, fmt.Errorf("CPU manager: %w", err)
	}
	k.topology.AddHintProvider(log, k.cpus)
	k.memory, err = memorymanager.NewManager(log, cmp.Or(s.Memory.Policy, "None"), info, held, perNode, o.Dir,
		k.topology)
	if err != nil {
		return nil, fmt.Errorf("memory manager: %w", err)
	}
	k.topology.AddHintProvider(log, k.memory)
	noDevices := func(*schedframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }
	k.handlers = []lifecycle.PodAdmitHandler{
		k.topology,
		lifecycle.NewPredicateAdmitHandler(o.Node, lifecycle.NewAdmissionFailureHandlerStub(), noDevices),
	}
	return k, k.start(ctx)
}

// start starts the managers, the CPU manager last: it then runs in a goroutine of its own.
func (k *Kubelet) start(ctx context.Context) error {
	s := seams{k}
	err := k.memory.Start(ctx, k.active, s, s, s, k.o.Running.Clone())
	if err == nil {
		err = k.cpus.Start(ctx, k.active, s, s, s, k.o.Running.Clone())
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errStaleState, err)
	}
	if cmp.Or(k.o.Settings.CPU.Policy, string(cpumanager.PolicyNone)) == string(cpumanager.PolicyNone) {
		close(k.ended) // it has nothing to reconcile, and so no goroutine
	}
	return nil
}

// reservation returns what is reserved: in total, and of memory by NUMA node. Invariant: the amounts by NUMA node add
// up to the total.
func reservation(cpus kcpuset.CPUSet, memory map[int32]corev1.ResourceList) (corev1.ResourceList,
	[]config.MemoryReservation,
) {
	all := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)}
	var perNode []config.MemoryReservation
	for node, limits := range memory {
		all = quota.Add(all, limits)
		perNode = append(perNode, config.MemoryReservation{NumaNode: node, Limits: limits})
	}
	slices.SortFunc(perNode, func(a, b config.MemoryReservation) int { return cmp.Compare(a.NumaNode, b.NumaNode) })
	return all, perNode
}

// Admit decides about a pod that has arrived. It returns nil if the pod may run; the pod then counts as active until
// Forget. A pod that ran before the kubelet started is admitted with its recorded allocation. The error is a *Panic.
func (k *Kubelet) Admit(pod *corev1.Pod) (refusal *Refusal, err error) {
	defer func() {
		if value := recover(); value != nil {
			refusal, err = nil, &Panic{value}
		}
	}()
	pod = pod.DeepCopy() // the managers append to its lists
	attributes := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: k.add(pod), Operation: lifecycle.AddOperation}
	for _, h := range k.handlers {
		// No admission is canceled: a handler that cannot read the Node would refuse the pod for good.
		if result := h.Admit(context.Background(), attributes); !result.Admit {
			k.Forget(pod.UID)
			return &Refusal{Reason: result.Reason, Message: "Pod was rejected: " + result.Message}, nil
		}
	}
	return nil, nil
}

func (k *Kubelet) add(pod *corev1.Pod) []*corev1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, pod.UID)
	others := k.list()
	k.pods[pod.UID] = record{pod: pod, status: pod.Status.DeepCopy()}
	return others
}

// list returns the active pods in order of their creation; the lock is held.
func (k *Kubelet) list() []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, len(k.pods))
	for _, r := range k.pods {
		pods = append(pods, r.pod)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	return pods
}

// Settled reports to the managers that all pods that existed at the start are admitted. Before that they release
// nothing, since they do not know all pods that run.
func (k *Kubelet) Settled() { k.settled.Store(true) }

// Observe stores the status of an active pod; the status must not be changed afterwards.
func (k *Kubelet) Observe(uid types.UID, status *corev1.PodStatus) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r, ok := k.pods[uid]; ok {
		r.status = status
		k.pods[uid] = r
	}
}

// Forget removes a pod of which nothing runs any more. As with a real kubelet, its resources are free from the next
// admission or the next reconciliation on.
func (k *Kubelet) Forget(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, uid)
}

// Affinity returns the CPUs and the NUMA nodes to start a container with, in list format; "" where the kubelet sets
// none.
func (k *Kubelet) Affinity(pod *corev1.Pod, container *corev1.Container) (cpus, mems string) {
	var nodes []int
	for n := range k.memory.GetMemoryNUMANodes(klog.Background(), pod, container) {
		nodes = append(nodes, n)
	}
	return k.cpus.GetCPUAffinity(string(pod.UID), container.Name).String(), kcpuset.New(nodes...).String()
}

// Added registers a container that has been started.
func (k *Kubelet) Added(pod *corev1.Pod, container *corev1.Container, id string) {
	k.cpus.AddContainer(klog.Background(), pod, container, id)
	k.memory.AddContainer(klog.Background(), pod, container, id)
	k.topology.AddContainer(klog.Background(), pod, container, id)
}

// Removed unregisters a container that has ended.
func (k *Kubelet) Removed(id string) error { return k.topology.RemoveContainer(klog.Background(), id) }

// Close ends the managers' own goroutine at its next reconciliation. Admit must not be called afterwards.
func (k *Kubelet) Close() { k.closed.Store(true) }

// Ended is closed when, after Close, the managers' goroutine has ended. Until then it may write state files.
func (k *Kubelet) Ended() <-chan struct{} { return k.ended }

// active returns the pods whose resources the managers must not release.
func (k *Kubelet) active() []*corev1.Pod {
	if k.closed.Load() {
		// The CPU manager reconciles for ever, in a goroutine without a stop signal. This ends the goroutine.
		close(k.ended)
		runtime.Goexit()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.list()
}

// seams implement the parts of a kubelet that the managers call: whether all pods that existed at the start are known,
// the status of pods, and the runtime.
type seams struct{ k *Kubelet }

func (seams) AddSource(string) {}
func (s seams) AllReady() bool { return s.k.settled.Load() }

func (s seams) GetPodStatus(uid types.UID) (corev1.PodStatus, bool) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	r, ok := s.k.pods[uid]
	if !ok {
		return corev1.PodStatus{}, false
	}
	return *r.status, true
}

func (s seams) UpdateContainerResources(_ context.Context, id string, r *cri.ContainerResources) error {
	if r.Linux == nil || r.Linux.CpusetCpus == "" {
		return nil
	}
	return s.k.o.Update(id, r.Linux.CpusetCpus)
}

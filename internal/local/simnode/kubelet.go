package simnode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/local/admit"
)

// workers is how many pods of one node are worked on at once: the time goes into waiting for the API server.
const workers = 4

type kubelet struct {
	n        *node
	machine  *topo.Machine
	reserved cpuset.Set // kept from pods by a static CPU manager
	gate     *gate
	informer cache.SharedIndexInformer
	queue    workqueue.TypedDelayingInterface[types.UID]

	connecting sync.Mutex // held while an agent learns what runs here; taken before mu

	mu      sync.Mutex    // guards the fields below; never held across a call out of the package
	service *hook.Service // of the agent that runs now; nil while none does
	synced  bool          // it knows what runs here
	pods    map[types.UID]*pod
	ips     map[string]types.UID
	boxes   map[string]hook.Container // by id: those that have a process
}

// pod is what the kubelet knows of one pod. The queue gives a UID to one worker at a time, who owns everything that is
// not immutable.
type pod struct {
	ref   types.NamespacedName // immutable
	uid   types.UID            // immutable
	group string
	ip    string
	// known: taken up from the tree; decided: the kubelet has let it in, or refusal says why it has not.
	known, decided bool
	refusal        *admit.Refusal
	sandboxed      bool                                            // an agent was asked about its sandbox
	boxes          map[string]*box                                 // by container name
	since          map[corev1.PodConditionType]corev1.PodCondition // as last computed
	sent           *corev1.PodStatus                               // as last written
	reported       string                                          // the cause of the last Event
}

func newKubelet(n *node, m *topo.Machine) (*kubelet, error) {
	k := &kubelet{
		n: n, machine: m, pods: map[types.UID]*pod{}, ips: map[string]types.UID{}, boxes: map[string]hook.Container{},
		queue: workqueue.NewTypedDelayingQueue[types.UID](),
	}
	var err error
	if k.reserved, _, err = m.ParseList(n.Machine.Kubelet.CPU.Reserved); err != nil {
		return nil, fmt.Errorf("reserved CPUs: %w", err)
	}
	k.gate = newGate(k)
	// A kubelet's credential allows no pods of other nodes.
	k.informer = informers.NewFilteredPodInformer(n.Client, metav1.NamespaceAll, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", n.Name).String()
		})
	return k, nil
}

// connect gives the kubelet the container service of the agent that runs now; nil when it ended.
func (k *kubelet) connect(s *hook.Service) {
	k.mu.Lock()
	k.service, k.synced = s, false
	all := slices.Collect(maps.Keys(k.pods))
	k.mu.Unlock()
	for _, uid := range all {
		k.queue.Add(uid)
	}
}

// agent returns the container service of the node's agent; nil while none can answer. The kubelet first sends it the
// running containers, as runtimes do when they connect.
func (k *kubelet) agent() *hook.Service {
	k.connecting.Lock()
	defer k.connecting.Unlock()
	k.mu.Lock()
	service, synced := k.service, k.synced
	k.mu.Unlock()
	if service == nil || !service.Ready() {
		return nil
	}
	if synced {
		return service
	}
	k.mu.Lock()
	pods, containers := map[string]hook.Pod{}, make([]hook.Container, 0, len(k.boxes))
	for _, c := range k.boxes {
		pods[c.Pod.ID] = c.Pod
		containers = append(containers, c)
	}
	k.mu.Unlock()
	// A new agent moves what runs here by itself: nothing is to be written.
	service.Sync(slices.Collect(maps.Values(pods)), containers)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.synced = k.service == service
	return service
}

func (k *kubelet) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer k.queue.ShutDown()
	seen, err := k.informer.AddEventHandler(kube.Handler(k.see, k.see))
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot watch pods", "node", k.n.Name)
		return
	}
	wg.Go(func() { k.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), seen.HasSynced) {
		return
	}
	k.sweep()
	for _, item := range k.informer.GetStore().List() {
		obj := item.(*corev1.Pod)
		for _, status := range slices.Concat(obj.Status.InitContainerStatuses, obj.Status.ContainerStatuses) {
			k.find(newPod(obj), obj, status)
		}
	}
	decided := make(chan struct{})
	go func() {
		defer close(decided)
		k.gate.run(ctx)
	}()
	for range workers {
		wg.Go(func() { k.work(ctx) })
	}
	<-ctx.Done()
	select {
	case <-decided:
	case <-time.After(leaveStuck):
		klog.FromContext(ctx).Info("The kubelet is left behind in the middle of a decision", "node", k.n.Name)
	}
}

func (k *kubelet) see(p *corev1.Pod) {
	k.mu.Lock()
	fresh := k.pods[p.UID] == nil
	if fresh {
		k.pods[p.UID] = newPod(p)
	}
	k.mu.Unlock()
	if fresh {
		k.gate.expect(p.UID)
	}
	k.queue.Add(p.UID)
}

func newPod(obj *corev1.Pod) *pod {
	return &pod{
		ref: types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, uid: obj.UID, group: groupOf(obj),
		boxes: map[string]*box{}, since: map[corev1.PodConditionType]corev1.PodCondition{},
	}
}

// groupOf returns the pod's group as the kubelet's cgroupfs driver names it.
func groupOf(p *corev1.Pod) string {
	dir := "kubepods/"
	switch p.Status.QOSClass {
	case corev1.PodQOSBurstable:
		dir += "burstable/"
	case corev1.PodQOSBestEffort:
		dir += "besteffort/"
	}
	return dir + "pod" + string(p.UID)
}

func (k *kubelet) work(ctx context.Context) {
	for {
		uid, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		wait, err := k.sync(ctx, uid)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			klog.FromContext(ctx).V(1).Info("Will be tried again", "node", k.n.Name, "pod", uid, "err", err)
			k.queue.AddAfter(uid, errorPause)
		case wait > 0:
			k.queue.AddAfter(uid, wait)
		}
		k.queue.Done(uid)
	}
}

// errorPause is the time after which a pod is tried again when the API server refused something.
const errorPause = 500 * time.Millisecond

// sync brings one pod a step further and returns when to look again; 0 when only an event can change anything.
func (k *kubelet) sync(ctx context.Context, uid types.UID) (time.Duration, error) {
	p := k.pod(uid)
	if p == nil {
		return 0, nil
	}
	obj := k.object(p)
	if obj == nil {
		k.tearDown(p)
		k.drop(p)
		return 0, nil
	}
	if !p.known {
		k.meet(p, obj)
	}
	switch {
	case obj.DeletionTimestamp != nil:
		return 0, k.finish(ctx, p, obj)
	case podutil.IsPodTerminal(obj):
		k.tearDown(p)
		return 0, nil
	}
	if !p.decided {
		if p.refusal, p.decided = k.gate.verdict(p.uid); !p.decided {
			return 0, nil // the gate queues it again
		}
	}
	if p.refusal != nil {
		k.tearDown(p)
		return 0, k.report(ctx, p, obj)
	}
	wait := k.advance(ctx, p, obj)
	runs := slices.ContainsFunc(slices.Collect(maps.Values(p.boxes)), (*box).runs)
	if wait == 0 && runs && k.agent() == nil {
		wait = lastRefusal // a new agent learns from the runtime what runs, by name
	}
	return wait, k.report(ctx, p, obj)
}

func (k *kubelet) pod(uid types.UID) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pods[uid]
}

// object returns the pod as the API has it; nil when it is gone or was replaced by another one of its name.
func (k *kubelet) object(p *pod) *corev1.Pod {
	obj, ok, err := k.informer.GetStore().GetByKey(p.ref.String())
	if err != nil || !ok {
		return nil
	}
	if found := obj.(*corev1.Pod); found.UID == p.uid {
		return found
	}
	return nil
}

func (k *kubelet) objectOf(uid types.UID) *corev1.Pod {
	if p := k.pod(uid); p != nil {
		return k.object(p)
	}
	return nil
}

func (k *kubelet) finish(ctx context.Context, p *pod, obj *corev1.Pod) error {
	k.tearDown(p)
	if len(obj.Finalizers) > 0 && !podutil.IsPodTerminal(obj) {
		// A controller that counts pods waits for the last word on this one.
		if err := k.report(ctx, p, obj); err != nil {
			return err
		}
	}
	zero := int64(0)
	err := k.n.Client.CoreV1().Pods(obj.Namespace).Delete(ctx, obj.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.uid},
	})
	return ignoreGone(err)
}

func (k *kubelet) drop(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.uid)
}

// release lets other pods have the address of one whose containers are gone. Its status keeps it.
func (k *kubelet) release(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ips[p.ip] == p.uid {
		delete(k.ips, p.ip)
	}
}

// address gives the pod an address of the node's range, the one it had before where it is free.
func (k *kubelet) address(p *pod, had string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	prefix := fmt.Sprintf("10.%d.%d.", 64+k.n.index>>8, k.n.index&255)
	if strings.HasPrefix(had, prefix) && k.ips[had] == "" {
		p.ip, k.ips[had] = had, p.uid
		return
	}
	for i := 2; i < 255; i++ {
		if ip := fmt.Sprint(prefix, i); k.ips[ip] == "" {
			p.ip, k.ips[ip] = ip, p.uid
			return
		}
	}
}

package simnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"

	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/local/admit"
)

// gate admits pods to a node one after the other, in the order of their arrival, as the kubelet's own managers and
// predicates decide. It works in a goroutine of its own, for a decision may take the kubelet seconds.
type gate struct {
	k       *kubelet
	arrived chan struct{} // of capacity one: signals that waiting is not empty

	mu       sync.Mutex                   // guards the fields below
	managers *admit.Kubelet               // nil until they have started
	waiting  []types.UID                  // pods that have arrived
	verdicts map[types.UID]*admit.Refusal // by pod that was decided about; nil: admitted
	broken   string                       // reason of the condition Ready; "" while decisions are made
	fault    error                        // the error of broken
	busy     types.NamespacedName         // the pod about which a decision is being made
	since    time.Time                    // when that decision began; zero between decisions
	others   bool                         // that pod asks for amounts which others write into the Node
}

const (
	// slowDecision is how long a decision may take before the condition Ready mentions it.
	slowDecision = 30 * time.Second
	// leaveStuck is how long the end of the node waits for a decision under way. The kubelet's merge cannot be
	// cancelled.
	leaveStuck = 2 * time.Second
	// kubeletDir is the kubelet's folder below the machine's root.
	kubeletDir = "var/lib/kubelet"
)

func newGate(k *kubelet) *gate {
	return &gate{k: k, arrived: make(chan struct{}, 1), verdicts: map[types.UID]*admit.Refusal{}}
}

func (g *gate) enqueue(uid types.UID) {
	g.mu.Lock()
	g.waiting = append(g.waiting, uid)
	g.mu.Unlock()
	select {
	case g.arrived <- struct{}{}:
	default:
	}
}

func (g *gate) verdict(uid types.UID) (*admit.Refusal, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	refusal, decided := g.verdicts[uid]
	return refusal, decided
}

// run decides until ctx ends. The pods that are there when it starts come first, in the order of their creation.
func (g *gate) run(ctx context.Context) {
	managers, err := admit.Open(ctx, admit.Options{
		Machine: g.k.machine, Settings: g.k.n.Machine.Kubelet, Dir: g.k.n.root.Path(kubeletDir), Node: g.node,
		Update: g.update, Running: g.running(), Reconcile: g.k.n.o.Reconcile,
	})
	if err != nil {
		g.fail(ctx, "KubeletDoesNotStart", err)
		return
	}
	defer managers.Close()
	g.mu.Lock()
	g.managers = managers
	slices.SortStableFunc(g.waiting, func(a, b types.UID) int { return g.created(a).Compare(g.created(b)) })
	g.mu.Unlock()
	for settled := false; ; settled = true {
		for uid, ok := g.next(); ok; uid, ok = g.next() {
			if err := g.decide(ctx, uid); err != nil {
				g.fail(ctx, "KubeletPanicked", err)
				return
			}
			if ctx.Err() != nil {
				return
			}
		}
		if !settled {
			managers.Settled()
		}
		select {
		case <-g.arrived:
		case <-ctx.Done():
			return
		}
	}
}

func (g *gate) created(uid types.UID) time.Time {
	if obj := g.k.objectOf(uid); obj != nil {
		return obj.CreationTimestamp.Time
	}
	return time.Time{}
}

func (g *gate) next() (uid types.UID, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		return "", false
	}
	uid, g.waiting = g.waiting[0], g.waiting[1:]
	return uid, true
}

// decide asks the managers about one pod, and queues the pod for the worker that waits for the answer. It skips pods
// that are being deleted or have ended.
func (g *gate) decide(ctx context.Context, uid types.UID) error {
	obj := g.k.objectOf(uid)
	if obj == nil || obj.DeletionTimestamp != nil || podutil.IsPodTerminal(obj) {
		return nil
	}
	g.setBusy(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}, time.Now())
	g.mu.Lock()
	g.others = asksForOthers(obj)
	g.mu.Unlock()
	defer g.setBusy(types.NamespacedName{}, time.Time{})
	refusal, err := g.managers.Admit(obj)
	if err != nil {
		return fmt.Errorf("admit pod %s/%s: %w", obj.Namespace, obj.Name, err)
	}
	g.mu.Lock()
	g.verdicts[uid] = refusal
	g.mu.Unlock()
	if refusal != nil {
		klog.FromContext(ctx).Info("The kubelet does not admit a pod", "node", g.k.n.Name, "pod", klog.KObj(obj),
			"reason", refusal.Reason)
		g.k.warn(obj, refusal.Reason, "Admit", refusal.Message)
	}
	if g.k.objectOf(uid) == nil { // the pod was deleted, and forgotten, before this decision was stored
		g.forget(uid)
	}
	g.k.queue.Add(uid)
	return nil
}

func (g *gate) setBusy(pod types.NamespacedName, since time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy, g.since = pod, since
}

// fail stops all admission: pods that are not admitted remain Pending, and the node's condition Ready has the reason.
func (g *gate) fail(ctx context.Context, reason string, err error) {
	klog.FromContext(ctx).Error(err, "The kubelet's managers do not work", "node", g.k.n.Name)
	g.mu.Lock()
	g.broken, g.fault = reason, err
	g.mu.Unlock()
	if err := g.k.n.updateReady(ctx); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to set the condition Ready, will retry", "node",
			g.k.n.Name)
	}
}

func (g *gate) ready(now time.Time) corev1.NodeCondition {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "the simulated kubelet is ready",
		now)
	switch {
	case g.fault != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, g.broken, g.fault.Error()
	case !g.since.IsZero() && now.Sub(g.since) > slowDecision:
		c.Message += fmt.Sprintf("; it has been deciding about pod %s since %s: the kubelet's merge of hints takes "+
			"that long, and other pods of the node wait", g.busy, g.since.UTC().Format(time.TimeOnly))
	}
	return c
}

// node returns the Node that pods must fit on. Labels that users added are only on that of the API server, not on the
// cached one, and so are amounts that others write into its status: the cached one has these for a pod that asks for
// them.
func (g *gate) node(ctx context.Context, cached bool) (*corev1.Node, error) {
	g.mu.Lock()
	others := g.others
	g.mu.Unlock()
	if cached && !others {
		return g.k.n.object(), nil
	}
	have, err := g.k.n.Client.CoreV1().Nodes().Get(ctx, g.k.n.Name, metav1.GetOptions{})
	if err != nil || !cached {
		return have, err
	}
	out := g.k.n.object()
	for name, amount := range have.Status.Allocatable {
		if _, own := out.Status.Allocatable[name]; !own {
			out.Status.Allocatable[name] = amount
		}
	}
	return out, nil
}

// asksForOthers reports whether a pod asks for amounts that this kubelet does not write itself, such as batch CPU. Of
// those that only look like them, which device plugins have, a kubelet leaves out what its Node lacks.
func asksForOthers(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if strings.HasPrefix(string(name), corev1.ResourceDefaultNamespacePrefix) {
					return true
				}
			}
		}
	}
	return false
}

func (g *gate) running() containermap.ContainerMap {
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	all := containermap.NewContainerMap()
	for id, c := range g.k.containers {
		all.Add(c.UID, c.Name, id)
	}
	return all
}

var errNoContainer = errors.New("the container is gone")

func (g *gate) update(id, cpus string) error {
	agent := g.k.agent()
	if agent == nil {
		return errNoAgent
	}
	c, ok := g.k.running(id)
	if !ok {
		return errNoContainer
	}
	answer, err := agent.Update(context.Background(), c, hook.Resources{CPUs: cpus})
	if err != nil {
		return err
	}
	defer agent.Updated(c)
	return g.k.set(c.Cgroup, hook.Resources{CPUs: cmp.Or(answer.CPUs, cpus)})
}

// kubelet returns the managers; nil until they have started. Until then this process has admitted no pod.
func (g *gate) kubelet() *admit.Kubelet {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.managers
}

func (g *gate) forget(uid types.UID) {
	g.mu.Lock()
	delete(g.verdicts, uid)
	g.mu.Unlock()
	if managers := g.kubelet(); managers != nil {
		managers.Forget(uid)
	}
}

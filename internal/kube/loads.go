package kube

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Loads is the account of what nodes use: from NodeMetrics, and from estimates of the pods that these lack. All methods
// may be called from any goroutine. View does not lock.
type Loads struct {
	enabled  atomic.Bool
	begun    atomic.Bool          // the first event has come
	settings convert.LoadSettings // not changed after begun
	expiry   time.Duration        // not changed after begun; 0 for reports that count at any age
	// changed and expired are called with nodes whose account is another one, or whose report has become too old. They
	// are set before the first event.
	changed, expired func(node string)

	nodes sync.Map // name → *loadedNode

	// next is the time in nanoseconds before which no report becomes too old; 0 where none will.
	next atomic.Int64

	mu   sync.Mutex // guards what follows, and the accounts
	pods map[types.UID]string
	// returns are the evictions of pods by the agents of their nodes.
	returns load.Returns
	// reports is how many nodes have one.
	reports atomic.Int64
}

// loadedNode is a node with its account. view is the account's, for readers.
type loadedNode struct {
	account *load.Node
	view    atomic.Pointer[load.View]
	old     bool // the report was too old when it was looked at last
}

// NewLoads returns an account without nodes, which follows nothing before it is enabled.
func NewLoads() *Loads {
	ignore := func(string) {}
	return &Loads{pods: map[types.UID]string{}, changed: ignore, expired: ignore}
}

// Enable begins to follow pods and NodeMetrics. The last call before the first event decides about estimates, and after
// which time a report is too old.
func (l *Loads) Enable(s convert.LoadSettings, expiry time.Duration) {
	if !l.begun.Load() {
		l.settings, l.expiry = s, expiry
		l.enabled.Store(true)
	}
}

// OnChange sets what is called with each node whose account has changed, and with each whose report has become too old.
func (l *Loads) OnChange(changed, expired func(node string)) { l.changed, l.expired = changed, expired }

// IsConfigured reports whether Enable was called.
func (l *Loads) IsConfigured() bool { return l.enabled.Load() }

// PutPod records a state of a pod.
func (l *Loads) PutPod(pod *corev1.Pod) {
	if workload, at, evicted := convert.EvictedByAgent(pod); evicted {
		l.mu.Lock()
		l.returns.Evicted(workload, pod.Spec.NodeName, at)
		l.mu.Unlock()
	}
	switch {
	case convert.IsReservePod(pod): // uses nothing
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		l.RemovePod(pod.UID)
	case pod.Spec.NodeName != "":
		assigned, known := l.assignedAt(pod)
		if !known {
			assigned = convert.AssignedAt(pod)
		}
		p, _ := l.settings.Pod(pod, assigned) // what cannot be read of a pod with a node does not count
		l.Assign(pod.Spec.NodeName, p)
	}
}

// assignedAt returns when a pod was assigned to its node, false for one that is not.
func (l *Loads) assignedAt(pod *corev1.Pod) (at time.Time, assigned bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods[pod.UID] != pod.Spec.NodeName {
		return at, false
	}
	p, assigned := l.node(pod.Spec.NodeName).account.Pod(string(pod.UID))
	return p.Assigned, assigned
}

// IsAssigned reports whether a pod counts on a node.
func (l *Loads) IsAssigned(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, assigned := l.pods[uid]
	return assigned
}

// WorkloadEvicted returns the workload of a pod if the agent of a node has evicted another pod of it lately, else "".
func (l *Loads) WorkloadEvicted(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.returns.Knows(string(owner.UID)) {
		return ""
	}
	return string(owner.UID)
}

// Avoids reports whether pods of a workload avoid a node, which has evicted one of them.
func (l *Loads) Avoids(workload, node string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.returns.Avoids(workload, node, now)
}

// Estimate returns what the account knows of a pod that is assigned now. It fails for annotations that cannot be read.
func (l *Loads) Estimate(pod *corev1.Pod, now time.Time) (load.Pod, error) {
	return l.settings.Pod(pod, now)
}

// Assign adds a pod to a node.
func (l *Loads) Assign(node string, p load.Pod) {
	uid := types.UID(p.UID)
	l.change(func() []string {
		was, assigned := l.pods[uid]
		touched := []string{node}
		if assigned && was != node {
			l.node(was).account.Remove(p.UID)
			touched = append(touched, was)
		}
		account := l.node(node).account
		if known, has := account.Pod(p.UID); has && known == p {
			return nil
		}
		account.Put(p)
		l.pods[uid] = node
		return touched
	})
}

// RemovePod removes a pod from its node. It does nothing for one that is not assigned.
func (l *Loads) RemovePod(uid types.UID) {
	l.change(func() []string {
		node, assigned := l.pods[uid]
		if !assigned {
			return nil
		}
		l.node(node).account.Remove(string(uid))
		delete(l.pods, uid)
		return []string{node}
	})
}

// PutMetric records a NodeMetric.
func (l *Loads) PutMetric(m *NodeMetric) { l.setReport(m.Name, m.Report) }

// RemoveMetric forgets a NodeMetric.
func (l *Loads) RemoveMetric(m *NodeMetric) { l.setReport(m.Name, nil) }

func (l *Loads) setReport(node string, r *load.Report) {
	l.change(func() []string {
		n := l.node(node)
		had := n.account.View().Report != nil
		switch {
		case r != nil && !had:
			l.reports.Add(1)
		case r == nil && had:
			l.reports.Add(-1)
		}
		n.account.SetReport(r)
		n.old = false
		if r != nil && l.expiry > 0 {
			l.expectExpiry(r)
		}
		return []string{node}
	})
}

// expectExpiry lowers next to when a report becomes too old.
func (l *Loads) expectExpiry(r *load.Report) {
	if r.Updated.IsZero() {
		return
	}
	if at, next := r.Updated.Add(l.expiry).UnixNano(), l.next.Load(); next == 0 || at < next {
		l.next.Store(at)
	}
}

// change runs f, which returns the nodes that it has changed, publishes their accounts, and reports the nodes.
func (l *Loads) change(f func() []string) {
	l.begun.Store(true)
	l.mu.Lock()
	touched := f()
	for _, name := range touched {
		n := l.node(name)
		if n.account.IsEmpty() {
			l.nodes.Delete(name)
			continue
		}
		view := n.account.View()
		n.view.Store(&view)
	}
	l.mu.Unlock()
	for _, name := range touched {
		l.changed(name)
	}
}

// node returns a node, which it adds where it is missing.
func (l *Loads) node(name string) *loadedNode {
	if n, known := l.nodes.Load(name); known {
		return n.(*loadedNode)
	}
	n := &loadedNode{account: load.NewNode()}
	n.view.Store(&load.View{})
	l.nodes.Store(name, n)
	return n
}

// View returns what is known of the use of a node.
func (l *Loads) View(node string) load.View {
	if n, known := l.nodes.Load(node); known {
		return *n.(*loadedNode).view.Load()
	}
	return load.View{}
}

// HasReports reports whether any node has a NodeMetric.
func (l *Loads) HasReports() bool { return l.reports.Load() > 0 }

// Expire reports the nodes whose NodeMetric has become too old. It costs nothing while none has.
func (l *Loads) Expire(now time.Time) {
	if next := l.next.Load(); next == 0 || now.UnixNano() < next {
		return
	}
	var old []string
	l.mu.Lock()
	l.next.Store(0)
	l.nodes.Range(func(name, value any) bool {
		n := value.(*loadedNode)
		r := n.account.View().Report
		switch {
		case r == nil || n.old || r.Updated.IsZero():
		case now.Sub(r.Updated) >= l.expiry:
			n.old = true
			old = append(old, name.(string))
		default:
			l.expectExpiry(r)
		}
		return true
	})
	l.mu.Unlock()
	slices.Sort(old)
	for _, name := range old {
		l.expired(name)
	}
}

// Pods returns the pods of a node, sorted by name.
func (l *Loads) Pods(node string) []load.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, known := l.nodes.Load(node)
	if !known {
		return nil
	}
	return slices.SortedFunc(n.(*loadedNode).account.Pods(), func(a, b load.Pod) int {
		return strings.Compare(a.Name, b.Name)
	})
}

// LoadTrial is pods that are assigned on trial, by node. It is not safe for concurrent use, apart from readers.
type LoadTrial map[string][]load.Pod

// Assign adds a pod to a node.
func (t *LoadTrial) Assign(node string, p load.Pod) {
	if *t == nil {
		*t = LoadTrial{}
	}
	(*t)[node] = append((*t)[node], p)
}

// Remove takes a pod from a node.
func (t *LoadTrial) Remove(node string, uid types.UID) {
	(*t)[node] = slices.DeleteFunc((*t)[node], func(p load.Pod) bool { return p.UID == string(uid) })
}

// On returns the view of a node with the pods of the trial.
func (t *LoadTrial) On(node string, v load.View) load.View {
	for _, p := range (*t)[node] {
		v = v.With(p)
	}
	return v
}

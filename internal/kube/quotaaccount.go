package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// notReadyGrace is how long a node that is not ready still counts: totals must not follow a node that flaps.
	notReadyGrace = 5 * time.Minute
	// graceCheck is how often Run looks for nodes whose grace has ended.
	graceCheck = 10 * time.Second
)

// Quotas keeps the account of a cluster's pods in their quotas, from Nodes, Pods and ElasticQuotas. All methods may be
// called from any goroutine, and Limits takes no lock.
//
//	ElasticQuota of both groups ─► one by name ─┐
//	Node ─► total of the counted nodes ─────────┼─► quota.Account, behind one mutex
//	Pod, Reserve, Release ──────────────────────┘
type Quotas struct {
	now        func() time.Time
	schedulers *convert.Schedulers // whose pods count in the quotas that their labels name
	configured atomic.Bool
	claimed    atomic.Pointer[claims]
	freed      atomic.Pointer[func()] // OnFreed's function; nil before

	mu       sync.Mutex // guards everything below
	config   quota.Config
	rules    quota.Rules
	sealed   bool // Configure has returned: config and rules do not change any more
	account  *quota.Account
	objects  map[string][]*v1alpha1.ElasticQuota // by name of the quota, in the order of compareAge: the first counts
	changes  uint64                              // counts changes of objects
	checker  *quota.Checker                      // the rules' view of the specs; nil after a change of objects
	problems map[string][]string                 // by name of the quota: what cannot be read of its objects
	pods     map[types.UID]*corev1.Pod           // as they were put last
	refused  map[string]*quota.Excess            // by UID: the limit that refused the pod's last attempt
	nodes    map[string]*countedNode
	total    amount.List // of the counted nodes

	limited map[string]int // by name of a device: how many quotas limit it
	devices []string       // the keys of limited, sorted: pods and nodes count devices under these names
	latest  amount.List    // what the last pod counts, shared with the pods after it that ask for the same
}

// claims is what Limits reads without a lock. It never changes; a change of quotas makes another one.
type claims struct {
	namespaces map[string]struct{} // namespaces whose pods may belong to a quota
	all        bool                // the quota Default is limited, so that every pod belongs to a limited quota
}

// countedNode is a node as the totals of quotas count it. It does not change; Quotas replaces it.
type countedNode struct {
	has     amount.List // what the node offers, under the names of its status
	amounts amount.List // has, with devices under the names that quotas limit
	until   time.Time   // the end of the grace, zero for a node that is ready
	counted bool        // amounts are in total
}

// NewQuotas returns an empty store with the default arguments. now is the clock of the grace of nodes.
func NewQuotas(now func() time.Time) *Quotas {
	s := &Quotas{
		now: now, config: quota.Config{ScaleMin: true}, objects: map[string][]*v1alpha1.ElasticQuota{},
		problems: map[string][]string{}, pods: map[types.UID]*corev1.Pod{}, refused: map[string]*quota.Excess{},
		nodes: map[string]*countedNode{}, total: amount.List{}, limited: map[string]int{},
	}
	s.account = quota.NewAccount(s.config, s.rules)
	return s
}

// Configure sets how quotas are divided and pods are admitted. There is one account per cluster, whichever profile
// schedules, so every caller must bring equal arguments, before the first object.
func (s *Quotas) Configure(c quota.Config, r quota.Rules) error {
	s.configured.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !reflect.DeepEqual(c, s.config) || r != s.rules {
		if s.sealed || len(s.pods)+len(s.objects)+len(s.nodes) > 0 {
			return errors.New("all profiles must give the plugin ElasticQuota equal arguments")
		}
		s.config, s.rules, s.account = c, r, quota.NewAccount(c, r)
		s.countLimited(quota.Default, 1)
		s.recountDevices()
		s.publishClaims()
	}
	s.sealed = true
	return nil
}

// UseDefaults is Configure with the default arguments, for a program without profiles.
func (s *Quotas) UseDefaults() *Quotas {
	s.configured.Store(true)
	return s
}

// IsConfigured reports whether Configure was called: a scheduler none of whose profiles has the plugin keeps no
// account.
func (s *Quotas) IsConfigured() bool { return s.configured.Load() }

// Trust ignores the labels and annotations of pods of other schedulers than these: such a pod counts in the quota of
// its namespace, whichever it names. It is called before the first object.
func (s *Quotas) Trust(schedulers *convert.Schedulers) { s.schedulers = schedulers }

// OnFreed sets the function that is called when a pending pod has left a quota, which can give others more: the
// scheduling queue has no event for that. It replaces an earlier one, is called without the store's lock, and must not
// block.
func (s *Quotas) OnFreed(f func()) { s.freed.Store(&f) }

// Limits reports whether some quota can hold the pod back. It takes no lock.
func (s *Quotas) Limits(p *corev1.Pod) bool {
	c := s.claimed.Load()
	if c == nil {
		return false
	}
	_, claimed := c.namespaces[p.Namespace]
	return claimed || c.all || p.Labels[annotation.QuotaName] != ""
}

// Misses reports whether the pod names a quota that does not exist.
func (s *Quotas) Misses(p *corev1.Pod) bool {
	if p.Labels[annotation.QuotaName] == "" || !s.Limits(p) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, missing := s.account.QuotaOf(convert.PodsOf(p))
	return missing
}

// Read calls f with the account. f must be short, and must neither change the account nor keep it.
func (s *Quotas) Read(f func(*quota.Account)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.account)
}

// Objects returns all ElasticQuotas, also those that do not count, and a number that changes with them.
func (s *Quotas) Objects() (all []*v1alpha1.ElasticQuota, changes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, objects := range s.objects {
		all = append(all, objects...)
	}
	return all, s.changes
}

// Changes returns the number of changes that Objects returns.
func (s *Quotas) Changes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// Reports describes all quotas, by name. Each report is of one moment, but two may be of different moments: the lock is
// released between them, so that writers need not wait for all.
func (s *Quotas) Reports() []quota.Report {
	var names []string
	s.Read(func(*quota.Account) {
		names = append(slices.Collect(maps.Keys(s.objects)), quota.Root, quota.System, quota.Default)
	})
	slices.Sort(names)
	var out []quota.Report
	for _, name := range slices.Compact(names) {
		if r, known := s.Report(name); known {
			out = append(out, r)
		}
	}
	return out
}

// Report describes a quota; false for one that does not exist.
func (s *Quotas) Report(name string) (r quota.Report, known bool) {
	s.Read(func(a *quota.Account) {
		if q := a.Forest().Find(name); q != nil {
			r, known = a.Forest().Report(q), true
		}
	})
	return r, known
}

// Problems returns what is wrong with the objects of a quota and what counts instead.
func (s *Quotas) Problems(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	texts := slices.Clone(s.problems[name])
	if q := s.account.Forest().Find(name); q != nil {
		texts = append(texts, q.Problems()...)
		for _, v := range s.checkerOf().Broken(q.Spec()) {
			texts = append(texts, fmt.Sprintf("quota %q: %s: %s (%s); it counts as it says", name, v.Field, v.Text,
				v.Rule))
		}
		if q.Spec().IsParent {
			if own := s.account.Members(q); len(own) > 0 {
				texts = append(texts, fmt.Sprintf("quota %q is a parent and has pods of its own, such as %s/%s; they "+
					"count with it, and its children are promised as much as without them", name, own[0].Namespace,
					own[0].Name))
			}
		}
	}
	return texts
}

// checkerOf returns the rules' view of the quotas that count.
func (s *Quotas) checkerOf() *quota.Checker {
	if s.checker != nil {
		return s.checker
	}
	f := s.account.Forest()
	// Whether the webhooks relax the rule is a flag of the manager.
	w := quota.World{RelaxResourceKeys: true, Used: func(name string) amount.List {
		return f.Report(f.Find(name)).Used
	}}
	for _, name := range slices.Sorted(maps.Keys(s.objects)) {
		w.Quotas = append(w.Quotas, *f.Find(name).Spec())
	}
	s.checker = quota.NewChecker(w)
	return s.checker
}

// Reserve reserves what pods ask of their quotas, all or none, until they are bound; Release of the account ends it.
func (s *Quotas) Reserve(uids ...string) *quota.Excess {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.account.Reserve(uids...)
	if x == nil {
		for _, uid := range uids {
			delete(s.refused, uid)
		}
	}
	return x
}

// Record returns the annotation with which a pod of a quota is bound; nil for a pod of none.
func (s *Quotas) Record(p *corev1.Pod) (record map[string]string) {
	if !s.Limits(p) {
		return nil
	}
	s.Read(func(a *quota.Account) {
		m, known := a.Find(string(p.UID))
		if known && m.Quota.Name() != quota.Default && s.objects[m.Quota.Name()] != nil {
			record = map[string]string{annotation.QuotaBound: m.Quota.Name()}
		}
	})
	return record
}

// Refuse remembers why an attempt on a pod failed, for Grew.
func (s *Quotas) Refuse(uid string, x *quota.Excess) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[types.UID(uid)] != nil {
		s.refused[uid] = x
	}
}

// Grew reports whether another attempt on a pod can end differently than its last one: more is left now under one of
// the limits that refused it. A pod that no limit refused may always be tried.
func (s *Quotas) Grew(uid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.refused[uid]
	return x == nil || s.account.Grew(uid, x)
}

// Grown returns the refused pods that Grew holds for.
func (s *Quotas) Grown() map[string]*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]*corev1.Pod{}
	for uid, x := range s.refused {
		if p := s.pods[types.UID(uid)]; p != nil && s.account.Grew(uid, x) {
			out[p.Namespace+"/"+p.Name] = p
		}
	}
	return out
}

// PutPod records a pod; one that has ended holds nothing.
func (s *Quotas) PutPod(p *corev1.Pod) {
	if convert.Ended(p) {
		s.RemovePod(p)
		return
	}
	s.notifyFreed(string(p.UID), func(known quota.Member) {
		next := convert.QuotaPod(s.schedulers.Trusted(p), s.amounts(p, known.Amounts))
		if last := s.pods[p.UID]; last != nil && last.Status.NominatedNodeName == "" && next.Node == "" {
			// This update may be older than the nomination, as in Kubernetes' nominator.
			next.Nominated = next.Nominated || known.Nominated
		}
		s.pods[p.UID] = p
		if next.Node != "" {
			delete(s.refused, next.UID)
		}
		s.account.Put(next)
	})
}

// Convert returns a pod as the account counts it.
func (s *Quotas) Convert(p *corev1.Pod) (out quota.Pod) {
	s.Read(func(*quota.Account) {
		out = convert.QuotaPod(s.schedulers.Trusted(p), convert.PodAmounts(p).Asked(s.devices))
	})
	return out
}

// amounts returns what a pod counts, with devices under the names that quotas limit. It returns known, what the pod has
// counted until now, where neither the spec nor a resize has changed it.
func (s *Quotas) amounts(p *corev1.Pod, known amount.List) amount.List {
	last := s.pods[p.UID]
	if last == nil || p.Generation == 0 || p.Generation != last.Generation ||
		convert.IsResizing(last) || convert.IsResizing(p) {
		next := convert.PodAmounts(p).Asked(s.devices)
		if !maps.Equal(next, s.latest) { // equal pods in a row share one map
			s.latest = next
		}
		return s.latest
	}
	return known
}

// AdmitChange reports why a pod that is bound may not become p; nil when its quotas allow it.
func (s *Quotas) AdmitChange(p *corev1.Pod) *quota.Excess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.account.AdmitChange(convert.QuotaPod(s.schedulers.Trusted(p), convert.PodAmounts(p).Asked(s.devices)))
}

// RemovePod forgets a pod.
func (s *Quotas) RemovePod(p *corev1.Pod) {
	uid := string(p.UID)
	s.notifyFreed(uid, func(quota.Member) {
		delete(s.pods, p.UID)
		delete(s.refused, uid)
		s.account.Remove(uid)
	})
}

// SetGang sets what holds a gang together.
func (s *Quotas) SetGang(id string, b gang.Bond) {
	s.Read(func(a *quota.Account) { a.SetGang(id, b) })
	if freed := s.freed.Load(); freed != nil {
		(*freed)()
	}
}

// Update changes by f how the account counts a pod.
func (s *Quotas) Update(uid types.UID, f func(*quota.Account)) {
	s.notifyFreed(string(uid), func(quota.Member) { f(s.account) })
}

// notifyFreed calls f with the pod as it has counted until now, and OnFreed's function where f has reduced what a
// pending pod asks of a quota, or ended its nomination.
func (s *Quotas) notifyFreed(uid string, f func(known quota.Member)) {
	if freed := s.freed.Load(); s.frees(uid, f) && freed != nil {
		(*freed)()
	}
}

// frees calls f, and reports whether f has freed something.
func (s *Quotas) frees(uid string, f func(known quota.Member)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, counted := s.account.Find(uid)
	f(before)
	if !counted || before.State != quota.Pending || before.Quota.Name() == quota.Default {
		return false
	}
	after, counted := s.account.Find(uid)
	return !counted || after.Quota != before.Quota || !maps.Equal(after.Amounts, before.Amounts) ||
		before.Nominated && !after.Nominated && after.State == quota.Pending
}

// PutClaim records a ResourceClaim. One that counts less than until now can leave more for others.
func (s *Quotas) PutClaim(c *resourcev1.ResourceClaim) { s.charge(s.ChargeOf(c)) }

// ChargeOf returns what a ResourceClaim counts.
func (s *Quotas) ChargeOf(c *resourcev1.ResourceClaim) quota.Charge {
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	charge := convert.QuotaCharge(c)
	charge.Amounts = config.Named(charge.Amounts)
	return charge
}

// RemoveClaim forgets a ResourceClaim.
func (s *Quotas) RemoveClaim(c *resourcev1.ResourceClaim) {
	s.charge(quota.Charge{ID: c.Namespace + "/" + c.Name})
}

func (s *Quotas) charge(c quota.Charge) {
	less := Ask(s, func(a *quota.Account) bool { return a.PutCharge(c) })
	if freed := s.freed.Load(); less && freed != nil {
		(*freed)()
	}
}

// PutNode records a node, as the API server has it.
func (s *Quotas) PutNode(n *corev1.Node) {
	next := &countedNode{}
	next.has, next.until, next.counted = Counted(n, s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	next.amounts = next.has.Offered(s.devices)
	s.replace(n.Name, next)
}

// Counted returns what a node has for pods, and reports whether it counts in totals: it is not being deleted, and
// ready, or not ready since a short time. until is the end of that time, zero for a ready node.
func Counted(n *corev1.Node, now time.Time) (amounts amount.List, until time.Time, counted bool) {
	amounts = convert.Amounts(convert.Schedulable(n).Status.Allocatable)
	for d, amount := range amounts {
		amounts[d] = min(amount, mostPerNode)
	}
	counted = n.DeletionTimestamp == nil
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			since := c.LastTransitionTime.Time
			if since.IsZero() {
				since = now
			}
			until = since.Add(notReadyGrace)
			counted = counted && now.Before(until)
		}
	}
	return amounts, until, counted
}

// RemoveNode forgets a node.
func (s *Quotas) RemoveNode(n *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(n.Name, nil)
}

// Expire takes the nodes whose grace has ended out of the totals.
func (s *Quotas) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.nodes {
		if n.counted && !n.until.IsZero() && !s.now().Before(n.until) {
			next := *n
			next.counted = false
			s.replace(name, &next)
		}
	}
}

// Run calls Expire until ctx ends.
func (s *Quotas) Run(ctx context.Context) {
	tick := time.NewTicker(graceCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Expire()
		}
	}
}

// replace sets what counts of a node, nil for a node that is gone, and updates the total.
func (s *Quotas) replace(name string, next *countedNode) {
	last := s.nodes[name]
	if s.nodes[name] = next; next == nil {
		delete(s.nodes, name)
	}
	before, after := last.offer(), next.offer()
	if maps.Equal(before, after) {
		return
	}
	s.total.Take(before)
	s.total.Add(after)
	s.account.SetNodes(s.total)
}

// offer returns what counts of a node.
func (n *countedNode) offer() amount.List {
	if n == nil || !n.counted {
		return nil
	}
	return n.amounts
}

// PutQuota records an ElasticQuota. Of several with one name the oldest counts, then the first by group and namespace.
func (s *Quotas) PutQuota(q *v1alpha1.ElasticQuota) { s.putQuota(q, false) }

// RemoveQuota forgets an ElasticQuota.
func (s *Quotas) RemoveQuota(q *v1alpha1.ElasticQuota) { s.putQuota(q, true) }

func (s *Quotas) putQuota(q *v1alpha1.ElasticQuota, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes++
	s.checker = nil
	same := slices.DeleteFunc(slices.Clone(s.objects[q.Name]), func(o *v1alpha1.ElasticQuota) bool {
		return o.Namespace == q.Namespace && o.GroupVersionKind().Group == q.GroupVersionKind().Group
	})
	if !gone {
		same = append(same, q)
	}
	slices.SortFunc(same, compareAge)
	s.countLimited(q.Name, -1)
	if len(same) == 0 {
		delete(s.objects, q.Name)
		delete(s.problems, q.Name)
		s.account.Unset(q.Name)
	} else {
		s.objects[q.Name] = same
		s.updateSpec(q.Name)
	}
	s.countLimited(q.Name, 1)
	s.recountDevices()
	s.publishClaims()
}

// publishClaims updates what Limits reads.
func (s *Quotas) publishClaims() {
	_, limited := s.objects[quota.Default]
	c := &claims{
		namespaces: map[string]struct{}{},
		all:        limited || len(s.config.DefaultMax) > 0,
	}
	for _, namespace := range s.account.Namespaces() {
		c.namespaces[namespace] = struct{}{}
	}
	s.claimed.Store(c)
}

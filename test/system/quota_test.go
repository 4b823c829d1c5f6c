package system

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const (
	quotaNodes  = 4 // of 96 CPUs each: 32 pods
	nodeGPUs    = 8
	podCPUs     = 3
	departments = 4
	teams       = 2 // of a department
	leaves      = 5 // of a team
	gangMembers = 3
	gangLeast   = 2
	earlyKills  = 3 // before the lender asks for its share
	// revokeAfter is how long a quota may use more than its share.
	revokeAfter = 30 * time.Second
	// calmRun is how long a process must have run for its next end to be followed by a start at once.
	calmRun = 5 * time.Second
	gpu     = "nvidia.com/gpu"
)

// share is a quota of the tree, in pods and GPUs.
type share struct {
	name, parent        string
	least, most         int64
	leastGPUs, mostGPUs int64
	isParent, otherAPI  bool
}

func leafName(department, team, leaf int) string {
	return fmt.Sprintf("d%d-t%d-l%d", department, team, leaf)
}

// shareTree is 4 departments of 2 teams of 5 leaves. Departments may use 144 pods together, of 128 that the nodes take,
// and 40 GPUs of 32.
func shareTree() (all []share) {
	for d := range departments {
		department := fmt.Sprintf("d%d", d)
		other := d%2 == 1
		all = append(all, share{
			name: department, least: 10, most: 36, leastGPUs: 2, mostGPUs: 10, isParent: true, otherAPI: other,
		})
		for t := range teams {
			team := fmt.Sprintf("d%d-t%d", d, t)
			all = append(all, share{
				name: team, parent: department, least: 5, most: 20, leastGPUs: 1, mostGPUs: 6, isParent: true,
				otherAPI: other,
			})
			for l := range leaves {
				s := share{name: leafName(d, t, l), parent: team, least: 1, most: 6, mostGPUs: 2, otherAPI: other}
				if l == 0 {
					s.leastGPUs = 1
				}
				all = append(all, s)
			}
		}
	}
	return all
}

func amounts(pods, gpus int64) amount.List {
	return amount.List{"cpu": pods * podCPUs * 1000, gpu: gpus}
}

func (s *share) floor() amount.List   { return amounts(s.least, s.leastGPUs) }
func (s *share) ceiling() amount.List { return amounts(s.most, s.mostGPUs) }

func (s *share) object() *v1alpha1.ElasticQuota {
	q := object.Quota(s.name, convert.ResourceList(s.floor()), convert.ResourceList(s.ceiling()),
		annotation.QuotaIsParent, fmt.Sprint(s.isParent))
	q.APIVersion = s.group() + "/v1alpha1"
	if s.parent != "" {
		q.Labels[annotation.QuotaParent] = s.parent
	}
	return q
}

func (s *share) group() string {
	if s.otherAPI {
		return v1alpha1.CommunityGroupName
	}
	return v1alpha1.GroupName
}

func quotaPath(group string) string {
	return "/apis/" + group + "/v1alpha1/namespaces/" + metav1.NamespaceDefault + "/elasticquotas"
}

// holding is what the API server says of a pod.
type holding struct {
	name, quota, gang string
	amounts           amount.List
	bound, fixed      bool
}

// holdings are the sums of the pods that are bound, at each revision that the API server had, and what is wrong with
// them.
type holdings struct {
	shares map[string]share

	mu       sync.Mutex // guards what follows
	pods     map[types.UID]holding
	used     map[string]amount.List // by quota
	removed  map[string]bool        // by the test
	evicted  []holding
	bindings int
	faults   []string
}

func newHoldings(all []share) *holdings {
	h := &holdings{
		shares: map[string]share{}, pods: map[types.UID]holding{}, used: map[string]amount.List{},
		removed: map[string]bool{},
	}
	for _, s := range all {
		h.shares[s.name], h.used[s.name] = s, amount.List{}
	}
	return h
}

// see follows one change of a pod. A pod holds its amounts until it is gone or has ended.
func (h *holdings) see(e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.pods[pod.UID]
	if e.Type == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		if was.bound {
			h.leave(was)
		}
		delete(h.pods, pod.UID)
		return
	}
	current := holding{
		name: pod.Name, quota: pod.Labels[annotation.QuotaName], gang: pod.Labels[annotation.PodGroup],
		amounts: convert.PodAmounts(pod), bound: pod.Spec.NodeName != "", fixed: !convert.IsPreemptible(pod),
	}
	h.pods[pod.UID] = current
	if current.bound && !was.bound {
		h.bindings++
		h.add(current, 1)
		for name := current.quota; name != ""; name = h.shares[name].parent {
			s := h.shares[name]
			for dimension, most := range s.ceiling() {
				if used := h.used[name][dimension]; used > most {
					h.faults = append(h.faults, fmt.Sprintf("quota %s uses %d of %s with %s, max is %d", name, used,
						dimension, current.name, most))
				}
			}
		}
	}
}

// leave takes a pod off. One that the test did not delete was evicted: then its quota used more than min.
func (h *holdings) leave(p holding) {
	if !h.removed[p.name] {
		h.evicted = append(h.evicted, p)
		s := h.shares[p.quota]
		above := false
		for dimension, least := range s.floor() {
			above = above || h.used[p.quota][dimension] > least
		}
		if !above || p.fixed {
			h.faults = append(h.faults, fmt.Sprintf("%s of quota %s was evicted (not preemptible: %t): used %v, min %v",
				p.name, p.quota, p.fixed, h.used[p.quota], s.floor()))
		}
	}
	h.add(p, -1)
}

func (h *holdings) add(p holding, sign int64) {
	for name := p.quota; name != ""; name = h.shares[name].parent {
		for dimension, n := range p.amounts {
			h.used[name][dimension] += sign * n
		}
	}
}

// load makes and deletes pods as a fixed source draws them.
type load struct {
	*local
	held    *holdings
	random  *rand.Rand
	created int
	running map[int][]string // names of those that may be deleted, by department
}

func (w *load) create(t *testing.T, department int) {
	t.Helper()
	i := w.created
	w.created++
	name := leafName(department, w.random.IntN(teams), w.random.IntN(leaves))
	pod := pod(fmt.Sprintf("share-%04d", i), object.Label(annotation.QuotaName, name),
		object.Requests("cpu", fmt.Sprint(podCPUs)))
	switch resources := &pod.Spec.Containers[0].Resources; {
	case i%4 == 1:
		one := resource.MustParse("1")
		resources.Requests[gpu], resources.Limits = one, corev1.ResourceList{gpu: one}
	case i%8 == 2:
		pod.Labels[annotation.QuotaPreemptible] = "false"
	}
	w.submit(t, pod)
	w.running[department] = append(w.running[department], pod.Name)
}

// gang makes the members of a gang, which the test never deletes.
func (w *load) gang(t *testing.T, leaf string) {
	t.Helper()
	for i := range gangMembers {
		w.submit(t, pod(fmt.Sprintf("gang-%s-%d", leaf, i), object.Label(annotation.QuotaName, leaf),
			object.Gang(leaf, fmt.Sprint(gangLeast)), object.Requests("cpu", fmt.Sprint(podCPUs))))
	}
}

// submit creates a pod. While the manager is dead, or the machine too busy for its webhook to answer in time, all are
// refused.
func (l *local) submit(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	waitFor(t, time.Minute, "pod "+pod.Name+" to be created", func() error {
		_, err := l.client.CoreV1().Pods(cmp.Or(pod.Namespace, metav1.NamespaceDefault)).Create(t.Context(), pod,
			metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// churn replaces some pods of departments, so that as many are asked for as before.
func (w *load) churn(t *testing.T, n int, quotas ...int) {
	t.Helper()
	for range n {
		d := quotas[w.random.IntN(len(quotas))]
		i := w.random.IntN(len(w.running[d]))
		name := w.running[d][i]
		w.running[d] = slices.Delete(w.running[d], i, i+1)
		w.held.mu.Lock()
		w.held.removed[name] = true
		w.held.mu.Unlock()
		err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // it was evicted
			t.Fatal(err)
		}
		w.create(t, d)
	}
}

// kill kills the process of a verb, as soon as it has run long enough to be started again at once.
func (w *load) kill(t *testing.T, verb string, begun map[string]time.Time) {
	t.Helper()
	pid := 0
	alive := func() error {
		pids, err := w.processes(verb)
		if err == nil && pids[0] == 0 {
			err = errors.New("no process")
		}
		pid = pids[0]
		return err
	}
	waitFor(t, time.Minute, verb+" to have run for a while", func() error {
		if left := calmRun - time.Since(begun[verb]); left > 0 {
			return fmt.Errorf("%v to go", left)
		}
		return alive()
	})
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", verb, err)
	}
	killed := pid
	waitFor(t, time.Minute, verb+" to be started again", func() error {
		if err := alive(); err != nil || pid != killed {
			return err
		}
		return fmt.Errorf("process %d still runs", pid)
	})
	begun[verb] = time.Now()
}

// state is the cluster at one moment, and the account that its objects alone give.
type state struct {
	quotas  []v1alpha1.ElasticQuota
	pods    []corev1.Pod
	nodes   []corev1.Node
	account *kube.Quotas
}

func (l *local) state(ctx context.Context) (*state, error) {
	s := &state{account: kube.NewQuotas(time.Now)}
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := l.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	s.nodes, s.pods = nodes.Items, pods.Items
	for i := range s.nodes {
		s.account.PutNode(&s.nodes[i])
	}
	for i := range s.pods {
		s.account.PutPod(&s.pods[i])
	}
	for _, group := range v1alpha1.Groups() {
		text, err := l.client.CoreV1().RESTClient().Get().AbsPath(quotaPath(group)).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var list v1alpha1.ElasticQuotaList
		if err := json.Unmarshal(text, &list); err != nil {
			return nil, err
		}
		s.quotas = append(s.quotas, list.Items...)
	}
	for i := range s.quotas {
		s.account.PutQuota(&s.quotas[i])
	}
	return s, nil
}

// unsettled says why the cluster is not at rest: a pod is on its way, an object does not say what its quota is, or a
// pod waits that its quotas admit and a node could take.
func (s *state) unsettled() error {
	room := map[string]amount.List{}
	for i := range s.nodes {
		room[s.nodes[i].Name] = convert.Amounts(s.nodes[i].Status.Allocatable)
	}
	for i := range s.pods {
		p := &s.pods[i]
		if p.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is being deleted", p.Name)
		}
		for dimension, n := range convert.PodAmounts(p) {
			if p.Spec.NodeName != "" {
				room[p.Spec.NodeName][dimension] -= n
			}
		}
	}
	for i := range s.pods {
		p := &s.pods[i]
		admit := func(a *quota.Account) *quota.Excess { return a.Admit(string(p.UID)) }
		if p.Spec.NodeName != "" || kube.Ask(s.account, admit) != nil {
			continue
		}
		for node, left := range room {
			fits := true
			for dimension, n := range convert.PodAmounts(p) {
				fits = fits && n <= left[dimension]
			}
			if fits {
				return fmt.Errorf("pod %s waits, its quota %s admits it and node %s has room", p.Name,
					p.Labels[annotation.QuotaName], node)
			}
		}
	}
	for i := range s.quotas {
		q := &s.quotas[i]
		r, _ := s.account.Report(q.Name)
		if says, err := said(q); err != nil || !maps.Equal(says.runtime, r.Runtime) || !maps.Equal(says.used, r.Used) {
			return fmt.Errorf("quota %s says %+v, its pods say used %v, runtime %v (%w)", q.Name, says, r.Used,
				r.Runtime, err)
		}
	}
	return nil
}

type saying struct{ used, runtime amount.List }

// said is what an object says of its quota.
func said(q *v1alpha1.ElasticQuota) (saying, error) {
	runtime, _, err := annotation.ParseAmounts(q.Annotations[annotation.QuotaRuntime])
	return saying{convert.Amounts(q.Status.Used), convert.Amounts(corev1.ResourceList(runtime))}, err
}

// atRest waits until nothing moves and returns what there is then.
func (l *local) atRest(t *testing.T, when string) (s *state) {
	t.Helper()
	waitFor(t, 2*time.Minute, "quotas and pods to come to rest "+when, func() (err error) {
		if s, err = l.state(t.Context()); err == nil {
			err = s.unsettled()
		}
		return err
	})
	return s
}

// check holds what the objects say at rest against the sums of the pods and the rules.
func (s *state) check(t *testing.T, when string, held *holdings) {
	t.Helper()
	held.mu.Lock()
	defer held.mu.Unlock()
	sums := map[string]amount.List{"": {}}
	for i := range s.nodes {
		for dimension, n := range convert.Amounts(s.nodes[i].Status.Allocatable) {
			sums[""][dimension] -= n // what the departments divide
		}
	}
	for i := range s.quotas {
		q := &s.quotas[i]
		says, err := said(q)
		testkit.Check(t, err)
		one := held.shares[q.Name]
		for dimension, most := range one.ceiling() {
			used, runtime := says.used[dimension], says.runtime[dimension]
			if used != held.used[q.Name][dimension] || used > most || runtime > most {
				t.Errorf("%s: quota %s says used %d, runtime %d of %s; its pods use %d, max is %d", when, q.Name, used,
					runtime, dimension, held.used[q.Name][dimension], most)
			}
			for name, n := range map[string]int64{q.Name: -runtime, one.parent: runtime} {
				if sums[name] == nil {
					sums[name] = amount.List{}
				}
				sums[name][dimension] += n
			}
		}
	}
	for name, over := range sums {
		for dimension, n := range over {
			if n > 0 {
				t.Errorf("%s: the quotas below %q have %d of %s together more than it has", when, name, n, dimension)
			}
		}
	}
}

// revocations returns the quotas that use more than their goal while a pod of another waits for that.
func (s *state) revocations() (donors []string) {
	pods := map[string]*corev1.Pod{}
	for i := range s.pods {
		pods[string(s.pods[i].UID)] = &s.pods[i]
	}
	s.account.Read(func(a *quota.Account) {
		claimants := func() (out []quota.Claimant) {
			for uid, p := range pods {
				m, _ := a.Find(uid)
				x := a.Admit(uid)
				for dimension := range m.Amounts {
					c := quota.Claimant{Pod: p.Name, Quota: m.Quota, Dimension: a.Forest().Dimension(dimension)}
					if x != nil {
						c.Level = a.Forest().Find(x.Quota)
					}
					if m.State == quota.Pending && (x == nil || dimension == x.Shortages[0].Dimension) {
						out = append(out, c)
					}
				}
			}
			return out
		}
		holders := func(q *quota.Quota) (out []quota.Holder) {
			for _, m := range a.Members(q) {
				if m.State != quota.Pending {
					out = append(out, quota.Holder{Member: m})
				}
			}
			return out
		}
		for _, r := range quota.NewRevoker(quota.OnDemand, 0, quota.Limits{}).Plan(time.Now(), a.Forest(), claimants,
			holders) {
			if len(r.Victims) > 0 {
				level := "the nodes"
				if r.Claimant.Level != nil {
					level = r.Claimant.Level.Name()
				}
				donors = append(donors, fmt.Sprintf("%s for %s of %s, which lacks %s by %s whose condition is %q: %+v",
					r.Donor.Name(), r.Claimant.Pod, r.Claimant.Quota.Name(), a.Forest().NameOf(r.Claimant.Dimension),
					level, s.condition(r.Claimant.Pod), r.Levels))
			}
		}
	})
	return donors
}

// condition is what the scheduler said last of a pod.
func (s *state) condition(name string) string {
	for i := range s.pods {
		for _, c := range s.pods[i].Status.Conditions {
			if s.pods[i].Name == name && c.Type == corev1.PodScheduled {
				return c.Message
			}
		}
	}
	return ""
}

// Law: whatever happens to scheduler and manager, no quota ever holds more than max, no quota at or below min loses a
// pod, and at rest every object says what its pods add up to, runtimes are within what is divided, and no pod waits
// that could run. What was lent comes back, down to the owner's share.
//
// Q1: used > max, wrong or empty status. Q2: borrowed amounts are never returned. Q6: evictions under min.
// Q15: stale sums.
func TestQuotasHoldWhileSchedulerAndManagerDie(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", fmt.Sprintf("xeon-2s=%d", quotaNodes), "--revoke-after", revokeAfter.String())
	ctx := t.Context()
	nodes, err := l.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range nodes.Items {
		gpus := map[string]string{gpu: fmt.Sprint(nodeGPUs)}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": gpus, "allocatable": gpus}})
		testkit.Check(t, err)
		if _, err := l.client.CoreV1().Nodes().Patch(ctx, nodes.Items[i].Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	tree := shareTree()
	for i := range tree {
		text, err := json.Marshal(tree[i].object())
		testkit.Check(t, err)
		waitFor(t, time.Minute, "quota "+tree[i].name+" to be created", func() error { // its parent must be seen
			return l.client.CoreV1().RESTClient().Post().AbsPath(quotaPath(tree[i].group())).Body(text).Do(ctx).Error()
		})
	}

	held := newHoldings(tree)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var observer sync.WaitGroup
	observer.Go(func() { l.follow(watching, held.see) })
	w := &load{local: l, held: held, random: rand.New(rand.NewPCG(3, 0)), running: map[int][]string{}}

	// Three departments ask for all that they may use and get it: the fourth needs little, and lends.
	for d := range departments {
		for range 3 {
			w.gang(t, leafName(d, w.random.IntN(teams), w.random.IntN(leaves-1)))
			if d == departments-1 {
				break
			}
		}
	}
	for range 40 {
		for d := range departments - 1 {
			w.create(t, d)
		}
	}
	for range 4 {
		w.create(t, departments-1)
	}
	begun, verbs := map[string]time.Time{}, []string{managerVerb, schedulerVerb}
	killed := 0
	for ; killed < earlyKills; killed++ {
		w.churn(t, 4, 0, 1, 2, 3)
		w.kill(t, verbs[killed%2], begun)
	}
	l.atRest(t, "after the first kills").check(t, "after the first kills", held)

	// Now the lender needs its share, and a part of what the others use comes back. Only its own pods come and go from
	// here on: a borrower that used less for a moment would have the whole delay again.
	for range 40 {
		w.create(t, departments-1)
	}
	waitFor(t, time.Minute, "a quota to use more than its share", func() error {
		s, err := l.state(ctx)
		if err == nil && len(s.revocations()) == 0 {
			err = errors.New("nothing is to be revoked")
		}
		return err
	})
	for ; killed < kills(); killed++ {
		w.churn(t, 2, departments-1)
		w.kill(t, schedulerVerb, begun)
	}
	l.atRest(t, "after all kills").check(t, "after all kills", held)
	waitFor(t, 5*time.Minute, "what was lent to come back", func() error {
		s, err := l.state(ctx)
		if err == nil {
			err = s.unsettled()
		}
		if err == nil && len(s.revocations()) > 0 {
			err = fmt.Errorf("still to come: %s", strings.Join(s.revocations(), "; "))
		}
		return err
	})
	end := l.atRest(t, "at the end")
	end.check(t, "at the end", held)
	stop()
	observer.Wait()

	held.mu.Lock()
	defer held.mu.Unlock()
	for _, fault := range held.faults {
		t.Error(fault)
	}
	for gang, members := range held.gangs() {
		if members.lost > 0 && members.bound > 0 && members.bound < gangLeast {
			t.Errorf("gang %s lost %d members to eviction and %d remain, of %d that it needs", gang, members.lost,
				members.bound, gangLeast)
		}
	}
	if len(held.evicted) == 0 {
		t.Error("no pod was evicted: what was lent did not come back")
	}
	t.Logf("%d pods created, %d bound, %d evicted, %d processes killed", w.created, held.bindings, len(held.evicted),
		killed)
}

type members struct{ bound, lost int }

func (h *holdings) gangs() map[string]members {
	out := map[string]members{}
	for _, p := range h.pods {
		if m := out[p.gang]; p.gang != "" && p.bound {
			m.bound++
			out[p.gang] = m
		}
	}
	for _, p := range h.evicted {
		if m := out[p.gang]; p.gang != "" {
			m.lost++
			out[p.gang] = m
		}
	}
	return out
}

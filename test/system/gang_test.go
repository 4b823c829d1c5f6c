package system

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	memberCPUs  = 40      // so that more is asked for than there is
	gangRow     = 10      // gangs before each kill
	otherPlace  = "other" // the second namespace
	completesIn = "30s"
	// startsWithin is the longest time between the first and the last Binding of what a gang needs, on a machine that
	// has much else to do.
	startsWithin = 30 * time.Second
)

// gangSeen is what a watcher knows of one gang.
type gangSeen struct {
	least   int
	with    *gangSeen       // the other gang of its group
	bound   map[string]bool // by pod, until the gang is removed
	since   time.Time       // of the first Binding
	took    time.Duration   // from the first Binding to that of the last one needed
	killed  bool            // a scheduler was meanwhile
	removed bool            // by the test
	late    bool            // it was in part for too long
}

// begun is when the first member of a gang, or of the one that starts with it, was bound.
func (g *gangSeen) begun() time.Time {
	if o := g.with; o != nil && !o.since.IsZero() && (g.since.IsZero() || o.since.Before(g.since)) {
		return o.since
	}
	return g.since
}

// taken is what pods that run have of a node.
type taken struct {
	milliCPU int
	gpus     map[int]int // percent, by minor
}

// gangWatch follows the Bindings of gangs.
type gangWatch struct {
	mu     sync.Mutex // guards what follows
	gangs  map[string]*gangSeen
	killed time.Time // the last time that a scheduler was killed
	faults []string

	cpus   map[string]int // by node
	nodes  map[string]*taken
	over   map[string]string // by node that gives more than it has: what
	counts map[string]bool   // by namespace and name: pods that are counted in nodes
	// refused is what nodes gave too much of until their kubelets refused a pod for it.
	refused []string
	waited  map[string]bool // gangs of which a pod had a reason not to be placed
	events  int
}

// see judges what is bound after each change of a pod: nodes have what their pods take (G3), and no gang (G1) and no
// group (G2) is in part for longer than it takes to bind it.
func (w *gangWatch) see(e watch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	ended := e.Type == watch.Deleted || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if key := pod.Namespace + "/" + pod.Name; pod.Spec.NodeName != "" && w.counts[key] == ended {
		w.counts[key] = !ended
		w.count(pod, ended)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && why.Refuses(c.Reason) {
			w.waited[pod.Labels["gang"]] = true
		}
	}
	now := time.Now()
	g := w.gangs[pod.Labels["gang"]]
	if g != nil && !g.removed && pod.Spec.NodeName != "" && !g.bound[pod.Name] {
		if g.bound[pod.Name] = true; len(g.bound) == 1 {
			g.since = now
		}
		if len(g.bound) == g.least {
			g.took, g.killed = now.Sub(g.begun()), !w.killed.Before(g.begun())
		}
	}
	for name, g := range w.gangs {
		begun := g.begun()
		if begun.IsZero() || g.removed || g.late || !w.killed.Before(begun) {
			continue
		}
		if g.took > startsWithin || len(g.bound) < g.least && now.Sub(begun) > startsWithin {
			g.late = true
			w.faults = append(w.faults, fmt.Sprintf("gang %s has %d of %d members %v after the first of its group",
				name, len(g.bound), g.least, now.Sub(begun)))
		}
	}
}

// count adds what a pod takes of its node, or subtracts it.
func (w *gangWatch) count(pod *corev1.Pod, ended bool) {
	sign, node := 1, pod.Spec.NodeName
	if ended {
		sign = -1
	}
	if w.nodes[node] == nil {
		w.nodes[node] = &taken{gpus: map[int]int{}}
	}
	state := w.nodes[node]
	state.milliCPU += sign * int(pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue())
	var devices struct {
		GPU []struct {
			Minor     int
			Resources map[string]resource.Quantity
		}
	}
	if text := pod.Annotations[annotation.DeviceAllocatedKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &devices); err != nil {
			w.faults = append(w.faults, fmt.Sprintf("devices of %s: %v", pod.Name, err))
		}
	}
	for _, d := range devices.GPU {
		core := d.Resources["koordinator.sh/gpu-core"]
		state.gpus[d.Minor] += sign * int(core.Value())
	}
	switch was, now := w.over[node], state.over(w.cpus[node]); {
	case now != "":
		w.over[node] = "node " + node + now
	case was != "":
		delete(w.over, node)
		if pod.Status.Phase == corev1.PodFailed && strings.HasPrefix(pod.Status.Reason, "OutOf") {
			w.refused = append(w.refused, was)
		} else {
			w.faults = append(w.faults, was)
		}
	}
}

// over says what a node with some CPUs gives that it does not have; "" for nothing.
func (s *taken) over(cpus int) (what string) {
	for minor, percent := range s.gpus {
		if percent > 100 {
			what += fmt.Sprintf(" gives %d %% of GPU %d", percent, minor)
		}
	}
	if s.milliCPU > 1000*cpus {
		what += fmt.Sprintf(" has %d CPUs and gives %d thousandths", cpus, s.milliCPU)
	}
	return what
}

// lost returns how often a leader lost its lease though it was not killed: on a busy machine, as on a paused one, it
// may bind a pod when the next one has begun.
func (l *local) lost(t *testing.T) int {
	t.Helper()
	lease, err := l.client.CoordinationV1().Leases("tenon-system").Get(t.Context(), "tenon-scheduler",
		metav1.GetOptions{})
	testkit.Check(t, err)
	return int(ptr.Deref(lease.Spec.LeaseTransitions, 0)) - kills()
}

// inPart returns the gangs of which too few members are bound, while some of their group are.
func (w *gangWatch) inPart() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, g := range w.gangs {
		if n := len(g.bound); !g.removed && !g.begun().IsZero() && n < g.least {
			names = append(names, fmt.Sprintf("%s: %d of %d", name, n, g.least))
		}
	}
	slices.Sort(names)
	return names
}

func (w *gangWatch) kill(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.killed = at
}

// gangLoad makes gangs of all kinds, by number.
type gangLoad struct {
	*local
	seen *gangWatch
	live map[string]int // members, by gang
	made int
}

// place is the namespace of a gang: each tenth is in the other one, and starts together with the one before it.
func place(i int) string {
	if i%10 == 9 {
		return otherPlace
	}
	return metav1.NamespaceDefault
}

func gangName(i int) string { return fmt.Sprintf("gang-%03d", i) }

// make creates the next gang, and waits for nothing.
func (l *gangLoad) make(t *testing.T) {
	t.Helper()
	i := l.made
	l.made++
	name, size := gangName(i), 2+i%7
	least := max(2, size-i%3)
	if i%3 == 2 {
		least = size
	}
	l.seen.mu.Lock()
	g := &gangSeen{least: least, bound: map[string]bool{}}
	l.seen.gangs[name] = g
	if first := l.seen.gangs[gangName(i-1)]; place(i) == otherPlace {
		g.with, first.with = first, g
	}
	l.seen.mu.Unlock()
	l.live[name] = size
	pod := pod(place(i)+"/"+name, object.Label("gang", name), object.Both("cpu", fmt.Sprint(memberCPUs)))
	switch i % 7 {
	case 0, 4:
		object.Gang(name, fmt.Sprint(least))(pod)
	case 1:
		pod.Labels[annotation.PodGroup] = name
		l.podGroup(t, v1alpha1.GroupName+"/v1alpha1", pod.Namespace, name, fmt.Sprintf(`{"minMember":%d}`, least))
	case 2:
		pod.Labels[annotation.CommunityPodGroup] = name
		l.podGroup(t, v1alpha1.CommunityGroupName+"/v1alpha1", pod.Namespace, name,
			fmt.Sprintf(`{"minMember":%d}`, least))
	case 3, 5:
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &name}
		l.podGroup(t, "scheduling.k8s.io/v1beta1", pod.Namespace, name,
			fmt.Sprintf(`{"schedulingPolicy":{"gang":{"minCount":%d}}}`, least))
	default:
		pod.Labels[annotation.LightweightGang] = name
		pod.Labels[annotation.LightweightMinAvailable] = fmt.Sprint(least)
	}
	if i%5 == 4 {
		pod.Annotations[annotation.GangMatchPolicy] = annotation.GangWaitingAndRunning
	}
	switch i % 10 {
	case 8, 9:
		first := i / 10 * 10
		pod.Annotations[annotation.GangGroups] = fmt.Sprintf(`["%s/%s","%s/%s"]`, place(first+8), gangName(first+8),
			place(first+9), gangName(first+9))
	case 2:
		pod.Annotations[annotation.GangMode] = annotation.GangNonStrict
		pod.Annotations[annotation.GangWaitingTime] = "20s"
	case 5:
		if size <= 4 {
			object.Both("cpu", fmt.Sprint(memberCPUs), "koordinator.sh/gpu", "100")(pod)
		}
	case 6:
		pod.Annotations["tenon.sh/simulate"] = `{"runFor":"` + completesIn + `"}`
	}
	for m := range size {
		pod.Name = fmt.Sprintf("%s-%d", name, m)
		l.submit(t, pod)
	}
}

func (l *gangLoad) podGroup(t *testing.T, version, namespace, name, spec string) {
	t.Helper()
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":"PodGroup","metadata":{"name":%q},"spec":%s}`, version, name, spec)
	path := "/apis/" + version + "/namespaces/" + namespace + "/podgroups"
	err := l.client.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(text)).Do(t.Context()).Error()
	testkit.Check(t, err)
}

// remove deletes the pods of a gang.
func (l *gangLoad) remove(t *testing.T, name string) {
	t.Helper()
	var i int
	if _, err := fmt.Sscanf(name, "gang-%d", &i); err != nil {
		t.Fatal(err)
	}
	l.seen.mu.Lock()
	l.seen.gangs[name].removed = true
	l.seen.mu.Unlock()
	for m := range l.live[name] {
		err := l.client.CoreV1().Pods(place(i)).Delete(t.Context(), fmt.Sprintf("%s-%d", name, m),
			metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	delete(l.live, name)
}

// started returns the gangs of which enough members are bound, and of the gang that starts with each.
func (l *gangLoad) started() (names []string) {
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	for name := range l.live {
		g := l.seen.gangs[name]
		if len(g.bound) >= g.least && (g.with == nil || len(g.with.bound) >= g.with.least) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// watchGangs follows pods from now on.
func watchGangs(t *testing.T, l *local) *gangLoad {
	t.Helper()
	load := &gangLoad{
		local: l, live: map[string]int{}, seen: &gangWatch{
			gangs: map[string]*gangSeen{}, cpus: map[string]int{}, nodes: map[string]*taken{},
			over: map[string]string{}, counts: map[string]bool{}, waited: map[string]bool{},
		},
	}
	nodes, err := l.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	testkit.Check(t, err)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		load.seen.cpus[n.Name] = int(n.Status.Allocatable.Cpu().Value())
	}
	watching, stop := context.WithCancel(t.Context())
	var observers sync.WaitGroup
	observers.Go(func() { l.follow(watching, load.seen.see) })
	t.Cleanup(func() {
		stop()
		observers.Wait()
	})
	return load
}

// TestGangsStartWholeWhileSchedulersDie is G1 to G3 on a running cluster: gangs of all sizes, in all dialects, Strict
// and NonStrict, some in groups over two namespaces and some with GPUs, ask for more than the cluster has; some are
// deleted, some complete, and the leading scheduler is killed again and again. No change of a pod shows a gang or a
// group in part for longer than it takes to bind it, apart from kills, or a node that gives more than it has; after a
// kill the rest of a gang that has begun follows; and when the gangs that run are gone, those that waited start, until
// none is left.
func TestGangsStartWholeWhileSchedulersDie(t *testing.T) {
	t.Parallel()
	l := watchGangs(t, up(t, 2, "--machine", fmt.Sprintf("xeon-2s=%d", size(16, 40)), "--machine",
		fmt.Sprintf("t4-2=%d", size(3, 6)), "--machine", fmt.Sprintf("hgx-h100=%d", size(2, 4))))
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: otherPlace}}
	if _, err := l.client.CoreV1().Namespaces().Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for kill := range kills() {
		for l.made < gangRow*(kill+1) || place(l.made) == otherPlace {
			l.make(t)
		}
		for i, name := range l.started() {
			if i%3 == 0 {
				l.remove(t, name)
			}
		}
		l.seen.kill(time.Now())
		l.killLeader(t)
		l.seen.kill(time.Now())
	}
	for len(l.live) > 0 {
		waitFor(t, 2*time.Minute, "gangs to start", func() error {
			if part := l.seen.inPart(); len(part) > 0 {
				return fmt.Errorf("in part are %v; the leader says %s", part, l.waiting())
			}
			if len(l.started()) == 0 {
				return fmt.Errorf("none of these has started: %v", slices.Sorted(maps.Keys(l.live)))
			}
			return nil
		})
		for _, name := range l.started() {
			l.remove(t, name)
		}
	}
	l.holdsNothing(t)
	l.seen.mu.Lock()
	defer l.seen.mu.Unlock()
	longest := map[bool][]string{}
	for name, g := range l.seen.gangs {
		longest[g.killed] = append(longest[g.killed], fmt.Sprintf("%7.3f s %s of %d", g.took.Seconds(), name, g.least))
		if len(g.bound) < g.least {
			t.Errorf("of gang %s %d were bound, want %d", name, len(g.bound), g.least)
		}
	}
	for _, fault := range slices.Concat(l.seen.faults, slices.Collect(maps.Values(l.seen.over))) {
		t.Error(fault)
	}
	if lost := l.lost(t); lost > 0 {
		t.Logf("leaders lost the lease %d times; kubelets refused pods of %q", lost, l.seen.refused)
	} else if len(l.seen.refused) > 0 {
		t.Errorf("kubelets refused pods, and no leader lost its lease: %q", l.seen.refused)
	}
	t.Logf("%d gangs on %d nodes, %d of them waited, %d schedulers killed, %d changes of pods judged", l.made,
		len(l.seen.cpus), len(l.seen.waited), kills(), l.seen.events)
	for killed, all := range longest {
		slices.Sort(all)
		slices.Reverse(all)
		t.Logf("from the first Binding to the last one needed, a scheduler killed meanwhile %t: %d gangs, the longest "+
			"took\n%s", killed, len(all), strings.Join(all[:min(10, len(all))], "\n"))
	}
	if len(l.seen.waited) < l.made/10 {
		t.Error("too few gangs have waited, so the test says little")
	}
	l.evict(t)
}

// waiting returns what the leading scheduler says of the gangs that wait.
func (l *gangLoad) waiting() (says string) {
	var gangs map[string]view.Gang
	if err := l.ask("plugins/Coscheduling/gangs", &gangs); err != nil {
		return err.Error()
	}
	for _, g := range gangs {
		if len(g.Pending)+len(g.Waiting) > 0 {
			says += fmt.Sprintf("\n%s, %s, bound %v, pending %v, waiting %v, plan %+v: %s %s", g.Name, g.State, g.Bound,
				g.Pending, g.Waiting, g.LastPlan, g.Reason, g.Message)
		}
	}
	return says
}

// holdsNothing waits until no gang has a reservation.
func (l *gangLoad) holdsNothing(t *testing.T) {
	t.Helper()
	waitFor(t, time.Minute, "reservations to end", func() error {
		var gangs map[string]view.Gang
		if err := l.ask("plugins/Coscheduling/gangs", &gangs); err != nil {
			return err
		}
		for _, g := range gangs {
			if len(g.Waiting)+len(g.Pending)+len(g.Bound) > 0 {
				return fmt.Errorf("gang %s has %+v", g.Name, g)
			}
		}
		return nil
	})
}

// evict fills the nodes with gangs of low priority, and lets one of high priority make room for itself: the fewest of
// them go that make room for all of it, each whole.
func (l *gangLoad) evict(t *testing.T) {
	t.Helper()
	const size, important = 8, 10
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		_, err := l.client.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	gang := func(name, class string, size int) {
		for m := range size {
			l.submit(t, pod(fmt.Sprintf("%s-%d", name, m), object.Label("of", name), object.Label("class", class),
				object.Gang(name, fmt.Sprint(size)), object.PriorityClass(class), object.Grace(1),
				object.Requests("cpu", fmt.Sprint(memberCPUs))))
		}
	}
	// bound counts the bound pods of a class by gang.
	bound := func(class string) (byNode map[string]int, all int) {
		pods, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(),
			metav1.ListOptions{LabelSelector: "class=" + class})
		testkit.Check(t, err)
		byNode = map[string]int{}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				byNode[p.Labels["of"]]++
				all++
			}
		}
		return byNode, all
	}
	room := 0
	for _, cpus := range l.seen.cpus {
		room += cpus / memberCPUs
	}
	for i := range room / size {
		gang(fmt.Sprint("low-", i), "low", size)
	}
	full, since := 0, time.Now()
	waitFor(t, time.Minute, "the nodes to be full", func() error {
		before := full
		if _, full = bound("low"); full != before {
			since = time.Now()
		}
		if full == 0 || time.Since(since) < 3*time.Second {
			return fmt.Errorf("%d pods are bound", full)
		}
		return nil
	})
	gang("high", "high", important)
	waitFor(t, time.Minute, "the gang of high priority to start", func() error {
		if _, n := bound("high"); n != important {
			return fmt.Errorf("%d of its %d members are bound", n, important)
		}
		return nil
	})
	left, n := bound("low")
	for name, n := range left {
		if n != size {
			t.Errorf("of gang %s %d of %d are left", name, n, size)
		}
	}
	if fewest := (important + size - 1) / size * size; full-n > fewest || full == n {
		t.Errorf("%d of %d pods of low priority were evicted for %d", full-n, full, important)
	}
	t.Logf("%d of %d pods of low priority were evicted for a gang of %d", full-n, full, important)
}

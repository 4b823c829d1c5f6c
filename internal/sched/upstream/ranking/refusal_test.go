package ranking

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	basemetrics "k8s.io/component-base/metrics"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/snapshot"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// choose is the core's step that chooses a node, in short. It counts in asked the nodes whose filters it runs.
func (c *cluster) choose(asked *int) schedulePod {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		nodes, err := c.snapshot.NodeInfos().List()
		testkit.Check(c.t, err)
		fit := &framework.FitError{Pod: pod.Pod, NumAllNodes: len(nodes)}
		fit.Diagnosis.NodeToStatus = framework.NewDefaultNodeToStatus()
		allowed, status, _ := f.RunPreFilterPlugins(ctx, state, pod.Pod)
		if !status.IsSuccess() {
			fit.Diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
			fit.Diagnosis.PreFilterMsg = status.Message()
			return scheduler.ScheduleResult{}, fit
		}
		f.GetNodeHint(ctx, pod.Pod, pod.PodSignature, state, 0)
		var feasible []fwk.NodeInfo
		for _, n := range nodes {
			if !allowed.AllNodes() && !allowed.NodeNames.Has(n.Node().Name) {
				continue
			}
			*asked++
			status := f.RunFilterPluginsWithNominatedPods(ctx, state, pod.Pod, n)
			if status.IsSuccess() {
				feasible = append(feasible, n)
				continue
			}
			fit.Diagnosis.NodeToStatus.Set(n.Node().Name, status)
			fit.Diagnosis.AddPluginStatus(status)
		}
		if len(feasible) == 0 {
			return scheduler.ScheduleResult{}, fit
		}
		return scheduler.ScheduleResult{SuggestedHost: feasible[0].Node().Name, FeasibleNodes: len(feasible)}, nil
	}
}

// large makes a pod of one of several shapes for which there is seldom room, or none.
func (c *cluster) large(shape int) *corev1.Pod {
	p := c.pod([]int{0, 2, 4, 7, 14, 16, 18}[shape%7])
	p.Spec.SchedulerName = "all"
	switch shape {
	case 0:
		object.Requests("cpu", fmt.Sprint(64+c.rnd.IntN(8)), "memory", "1Gi")(p)
	case 1:
		object.Requests("cpu", fmt.Sprintf("%dm", 15000-c.rnd.IntN(1000)), "memory", "1Gi")(p)
	case 2:
		p.Spec.NodeSelector = map[string]string{"disk": "none"}
	case 3:
		object.Requests("cpu", "1", "memory", "31Gi")(p)
	case 4:
		object.Both("cpu", "16", "memory", "1Gi")(p)
	case 5:
		object.Both("cpu", "14", "memory", "1Gi")(p)
	case 6:
		object.Requests("cpu", "13", "memory", "20Gi")(p)
	case 7:
		object.Requests("cpu", "15", "memory", "30Gi")(p)
		p.Spec.Priority = new(int32)
		*p.Spec.Priority = 7
	}
	return p
}

// said is all that is shown of a refusal, or follows from it: the message is a function of the findings.
type said struct {
	nodes            map[string]string
	plugins, pending []string
	text             string
	findings         []why.Finding
	count            int // of nodes
}

func (c *cluster) saidOf(f framework.Framework, fit *framework.FitError) said {
	out := said{nodes: map[string]string{}, text: fit.Error()}
	fit.Diagnosis.NodeToStatus.ForEachExplicitNode(func(node string, s *fwk.Status) {
		out.nodes[node] = fmt.Sprint(s.Code(), s.Plugin(), s.Reasons())
	})
	out.plugins, out.pending = sets.List(fit.Diagnosis.UnschedulablePlugins), sets.List(fit.Diagnosis.PendingPlugins)
	out.findings, out.count = refusals.Attempt(f, fit.Pod, fwk.NewStatus(fwk.Unschedulable).WithError(fit))
	return out
}

// TestWhatIsSaidOfARefusalIsWhatAPassOverTheNodesSays: a pod that all nodes have refused is refused again by what is
// remembered, with the same codes, counts, root cause and text as by a pass over all nodes.
func TestWhatIsSaidOfARefusalIsWhatAPassOverTheNodesSays(t *testing.T) {
	c := newCluster(t, 2)
	c.wait("12")
	c.wait("12")
	p, asked, passed := c.profiles["all"], 0, 0
	live, later := c.live(), retained{}
	remembering := Remember(func(name string) *Profile { return c.profiles[name] }, c.choose(&asked))
	refused, recalled, placed, hopeless, kept, shared := 0, 0, 0, 0, 0, 0
	keys := map[*framework.NodeToStatus]string{}
	held := []*corev1.Pod{c.large(0), c.large(4), c.large(7)}
	for step := range 10_000 {
		switch kind := c.rnd.IntN(4); {
		case kind == 0 || len(c.pods) > 100:
			c.disturb()
		case kind == 1:
			c.schedule(t.Context(), c.pod(c.rnd.IntN(workloads)))
		}
		testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
		pod := c.large(c.rnd.IntN(8))
		if step%4 == 0 { // one of three that wait, wherever they are nominated to by now
			i := step / 4 % len(held)
			if step%20 == 0 {
				name, _ := anyOf(c, c.nodes)
				held[i].Status.NominatedNodeName = name
				info, err := framework.NewPodInfo(held[i])
				testkit.Check(t, err)
				c.queue.AddNominatedPod(klog.Background(), info, &fwk.NominatingInfo{
					NominatingMode: fwk.ModeOverride, NominatedNodeName: name,
				})
			}
			if pod = held[i]; pod.Status.NominatedNodeName == "" {
				continue
			}
		}
		info, err := framework.NewPodInfo(pod)
		testkit.Check(t, err)
		queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: p.SignPod(t.Context(), pod)}

		before, state := asked, framework.NewCycleState()
		result, err := remembering(t.Context(), p, state, queued)
		_, want := c.choose(&passed)(t.Context(), p.Framework, framework.NewCycleState(), queued)
		var got, fit *framework.FitError
		if errors.As(want, &fit) != errors.As(err, &got) {
			t.Fatalf("step %d, %v: got %v, %v; a pass says %v", step, pod.Labels, result, err, want)
		}
		if fit == nil {
			placed++
			continue
		}
		refused++
		if pass, memory := c.saidOf(p.Framework, fit), c.saidOf(p, got); !reflect.DeepEqual(pass, memory) {
			t.Fatalf("step %d, %v (-pass +got):\n%s", step, pod.Labels,
				cmp.Diff(pass, memory, cmp.AllowUnexported(said{})))
		}
		if got.Diagnosis.PreFilterMsg != "" {
			continue
		}
		if before == asked {
			recalled++
		}
		if p.attempt.key != "" {
			if key, known := keys[got.Diagnosis.NodeToStatus]; known && key != p.attempt.key {
				shared++
			}
			keys[got.Diagnosis.NodeToStatus] = p.attempt.key
		}
		c.compareSummary(p, got)
		c.compareLive(p, live, got, fit)
		if later.fit == nil && p.Retain(got) {
			later = retained{got, step, c.saidOf(p, got).nodes}
		} else if later.fit != nil && step > later.step+20 {
			if diff := cmp.Diff(later.nodes, c.saidOf(p, later.fit).nodes); diff != "" {
				t.Fatalf("step %d: what was retained in step %d has changed (-was +now):\n%s", step, later.step, diff)
			}
			later = retained{}
			kept++
		}
		if p.hasNoVictims(pod) {
			hopeless++
		}
		if p.refused.Load() != nil && p.hasNoVictims(pod) != (c.lowestPriority() >= corev1helpers.PodPriority(pod)) {
			t.Fatalf("step %d: some pod has a lower priority: %t", step, !p.hasNoVictims(pod))
		}
	}
	t.Logf("%d refused, %d of them by memory, %d where preemption has no victims, %d by a table of another key, "+
		"%d placed; %d nodes asked, %d by passes", refused, recalled, hopeless, shared, placed, asked, passed)
	if recalled < refused/2 || kept < 100 || shared < 20 || placed < 500 || hopeless < 1000 || refused-hopeless < 500 {
		t.Error("too few of a kind for the steps to mean anything")
	}
}

// TestSizesShareATableWhateverComesBetweenThem: pods of more CPUs than a node has and than a node has left, in
// alternation, are refused in the same words with other codes. Each kind has one table.
func TestSizesShareATableWhateverComesBetweenThem(t *testing.T) {
	c := newCluster(t, 1)
	c.prepare(200, mix{sizes: 1}, -1)
	testkit.Check(t, c.cache.AddPod(klog.Background(), object.Pod("runs", object.UID("runs"), object.On("bench-00000"),
		object.Requests("cpu", "4"))))
	testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
	p, asked := c.profiles["all"], 0
	remembering := Remember(func(string) *Profile { return p }, c.choose(&asked))
	tables, statuses := map[*framework.NodeToStatus]int{}, map[*fwk.Status]bool{}
	for i := range 50 {
		pod := c.nextOfMix()
		pod.UID = types.UID(fmt.Sprint(i))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "bench-00000"}
		object.Requests("cpu", fmt.Sprintf("%dm", []int{30000, 64000}[i%2]+i), "memory", "1Gi")(pod)
		info, err := framework.NewPodInfo(pod)
		testkit.Check(t, err)
		queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: p.SignPod(t.Context(), pod)}
		_, err = remembering(t.Context(), p, framework.NewCycleState(), queued)
		var fit *framework.FitError
		if !errors.As(err, &fit) {
			t.Fatal(err)
		}
		tables[fit.Diagnosis.NodeToStatus]++
		fit.Diagnosis.NodeToStatus.ForEachExplicitNode(func(_ string, s *fwk.Status) { statuses[s] = true })
	}
	if len(tables) != 2 || len(statuses) > 10 {
		t.Errorf("%d tables of %d statuses, want 2 of a few", len(tables), len(statuses))
	}
}

// TestANominatedPodIsRefusedByAMemoryOfItsOwn: a pod that waits for its node, which is held for it, is refused without
// a pass over the nodes again. What they say to it holds for no other pod: there, it does not count against itself.
func TestANominatedPodIsRefusedByAMemoryOfItsOwn(t *testing.T) {
	c := newCluster(t, 1)
	c.prepare(50, mix{sizes: 1}, -1)
	testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
	nodes, err := c.snapshot.NodeInfos().List()
	testkit.Check(t, err)
	p, asked, number := c.profiles["all"], 0, 0
	remembering := Remember(func(string) *Profile { return p }, c.choose(&asked))
	pod := func(nominated string) *corev1.Pod {
		number++
		pod := c.nextOfMix()
		pod.UID, pod.Status.NominatedNodeName = types.UID(fmt.Sprint("pod-", number)), nominated
		object.Requests("cpu", "640", "memory", "1Gi")(pod)
		return pod
	}
	// try returns how many nodes are asked about a pod, which all refuse.
	try := func(pod *corev1.Pod) int {
		info, err := framework.NewPodInfo(pod)
		testkit.Check(t, err)
		queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: p.SignPod(t.Context(), pod)}
		before, state := asked, framework.NewCycleState()
		_, err = remembering(t.Context(), p, state, queued)
		var fit *framework.FitError
		if !errors.As(err, &fit) || fit.Diagnosis.NodeToStatus.Len() != len(nodes) {
			t.Fatalf("%s: %v", pod.UID, err)
		}
		if ranks := p.ranks(t.Context(), state, pod); ranks != (pod.Status.NominatedNodeName == "") {
			t.Errorf("%s, nominated to %q: other nodes are ranked: %t", pod.UID, pod.Status.NominatedNodeName, ranks)
		}
		return asked - before
	}
	plain, held, alike := pod(""), pod("bench-00000"), pod("bench-00000")
	for _, step := range []struct {
		pod   *corev1.Pod
		asked int
	}{{plain, len(nodes)}, {plain, 0}, {held, len(nodes)}, {held, 0}, {alike, len(nodes)}, {pod(""), 0}, {held, 0}} {
		if got := try(step.pod); got != step.asked {
			t.Errorf("%s, nominated to %q: %d nodes asked, want %d", step.pod.UID, step.pod.Status.NominatedNodeName,
				got, step.asked)
		}
		// Whatever leaves a node can change where held room is, so that the queue tries the pod again.
		if waits := p.Amounts(step.pod) == nil; waits != (step.pod.Status.NominatedNodeName != "") {
			t.Errorf("%s: woken by all that leaves: %t", step.pod.UID, waits)
		}
	}
	for range 2 * refusalsKept {
		try(pod("bench-00001"))
	}
	if got := try(plain); got != 0 {
		t.Errorf("after many nominated pods, %d nodes are asked about another, want none", got)
	}
}

// TestAProfileFiltersNodesAsItsFrameworkDoes: those with nominated pods, and those without, of which it makes less.
func TestAProfileFiltersNodesAsItsFrameworkDoes(t *testing.T) {
	c := newCluster(t, 3)
	c.wait("12")
	c.wait("12")
	p, refused, nominated := c.profiles["all"], 0, 0
	for step := range 500 {
		c.renominate(step % 2)
		if step%3 == 0 {
			c.disturb()
		}
		testkit.Check(t, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
		pod, state := c.large(c.rnd.IntN(8)), framework.NewCycleState()
		if _, status, _ := p.Framework.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
			continue
		}
		nodes, err := c.snapshot.NodeInfos().List()
		testkit.Check(t, err)
		for _, n := range nodes {
			got := p.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, n)
			want := p.Framework.(quiet).Framework.RunFilterPluginsWithNominatedPods(t.Context(), state, pod, n)
			if got.IsSuccess() != want.IsSuccess() || !want.IsSuccess() &&
				fmt.Sprint(got.Code(), got.Plugin(), got) != fmt.Sprint(want.Code(), want.Plugin(), want) {
				t.Fatalf("step %d, node %s: got %v, want %v", step, n.Node().Name, got, want)
			}
			alone := p.RunFilterPlugins(t.Context(), state, pod, n)
			if !want.IsSuccess() {
				refused++
			}
			if alone.IsSuccess() != want.IsSuccess() {
				nominated++
			}
		}
	}
	if refused < 1000 || nominated < 20 {
		t.Errorf("%d nodes refused, %d of them because of nominated pods: too few to mean anything", refused, nominated)
	}
}

// retained is a refusal of a step before, with how the nodes refused.
type retained struct {
	fit   *framework.FitError
	step  int
	nodes map[string]string
}

// live is an evaluator beside the profiles.
func (c *cluster) live() *refusals.Live {
	return refusals.NewLive(snapshot.NewCopy(c.cache), func(nodes fwk.SharedLister,
	) (map[string]framework.Framework, error) {
		f, err := c.framework(profileOf(c.t, "all", true), nodes)
		return map[string]framework.Framework{"all": f}, err
	})
}

// compareLive compares the explanation that is made beside the scheduling loop with one that is made within it.
func (c *cluster) compareLive(p *Profile, live *refusals.Live, fit, pass *framework.FitError) {
	c.t.Helper()
	status := fwk.NewStatus(fwk.Unschedulable).WithError(fit)
	first, verdict, err := live.Refusals(c.t.Context(), "all", status)
	testkit.Check(c.t, err)
	gotRoot, got := why.Explain(refusals.Completed(verdict.Findings, first), verdict.Nodes)
	within := fwk.NewStatus(fwk.Unschedulable).WithError(pass)
	findings, err := refusals.Refusals(c.t.Context(), p.Framework, pass.Pod, within)
	testkit.Check(c.t, err)
	asked, attempted := c.byTwoPasses(p.Framework, pass.Pod, within)
	for where, all := range map[string][]why.Finding{"within the loop": findings, "by two passes": asked} {
		if root, want := why.Explain(all, pass.NumAllNodes); got != want || gotRoot != root {
			c.t.Fatalf("beside the loop:\n%s\n%s:\n%s", got, where, want)
		}
	}
	if diff := cmp.Diff(codes(attempted), codes(first)); diff != "" {
		c.t.Fatalf("codes that are counted (-by a pass +beside the loop):\n%s", diff)
	}
}

// byTwoPasses is what refusals.After says, by one pass of all filters and another over what the attempt said.
func (c *cluster) byTwoPasses(f framework.Framework, pod *corev1.Pod, status *fwk.Status,
) (all, attempted []why.Finding) {
	c.t.Helper()
	attempted, _ = refusals.Attempt(f, pod, status)
	v, err := refusals.Of(c.t.Context(), f, pod)
	testkit.Check(c.t, err)
	all = v.Findings
	for _, one := range attempted {
		if one.Phase == why.Preemption || !slices.ContainsFunc(v.Findings, func(f why.Finding) bool {
			return f.Object == one.Object
		}) {
			all = append(all, one)
		}
	}
	return all, attempted
}

// codes are the plugins and codes that are counted of findings, sorted.
func codes(findings []why.Finding) (out []string) {
	for _, o := range why.Obstacles(findings) {
		out = append(out, o.Plugin+" "+o.Code.String())
	}
	slices.Sort(out)
	return out
}

// compareSummary compares the text that is made of counts with that of a pass.
func (c *cluster) compareSummary(p *Profile, fit *framework.FitError) {
	c.t.Helper()
	reasons, _, ok := p.Summary(fit)
	if !ok {
		return
	}
	short := framework.FitError{NumAllNodes: fit.NumAllNodes}
	short.Diagnosis.PreFilterMsg = reasons
	if got, want := short.Error(), fit.Error(); got != want {
		c.t.Fatalf("got %q, want %q", got, want)
	}
}

func (c *cluster) lowestPriority() int32 {
	lowest := int32(math.MaxInt32)
	nodes, err := c.snapshot.NodeInfos().List()
	testkit.Check(c.t, err)
	for _, n := range nodes {
		for _, i := range n.GetPods() {
			lowest = min(lowest, corev1helpers.PodPriority(i.GetPod()))
		}
	}
	return lowest
}

// BenchmarkExplanation is the first refusal of a pod by 5,000 nodes: a pass of the filters, what the attempt does
// besides if its explanation is made beside the scheduling loop, and that explanation. Sizes is a pass and what the
// attempt does besides for pods of which each has a size of its own, while no explanation is made beside.
func BenchmarkExplanation(b *testing.B) {
	c := newClusterBy(b, 1, false)
	c.prepare(5000, mix{sizes: 1}, -1)
	testkit.Check(b, c.cache.UpdateSnapshot(klog.Background(), c.snapshot))
	p, pod, asked := c.profiles["all"], c.nextOfMix(), 0
	object.Requests("cpu", "64", "memory", "1Gi")(pod)
	info, err := framework.NewPodInfo(pod)
	testkit.Check(b, err)
	queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: p.SignPod(b.Context(), pod)}
	pass := func() error {
		_, err := c.choose(&asked)(b.Context(), p.Framework, framework.NewCycleState(), queued)
		return err
	}
	status := fwk.NewStatus(fwk.Unschedulable).WithError(pass())
	b.Run("pass", func(b *testing.B) {
		for b.Loop() {
			_ = pass()
		}
	})
	remembering := Remember(func(string) *Profile { return p }, c.choose(&asked))
	handler := func() scheduler.FailureHandlerFn {
		reporter := refusals.NewReporter(fake.NewClientset(), func(...basemetrics.Registerable) {},
			func(string, string) {}, clock.RealClock{})
		reporter.ExplainBeside(c.live())
		return reporter.Wrap(func(context.Context, framework.Framework, *framework.QueuedPodInfo, *fwk.Status,
			*fwk.NominatingInfo, time.Time,
		) {
		})
	}
	b.Run("sizes", func(b *testing.B) {
		handle := handler()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			next := pod.DeepCopy()
			next.UID = types.UID(fmt.Sprint("size ", i))
			object.Requests("cpu", fmt.Sprintf("%dm", 64000+i), "memory", "1Gi")(next)
			info, err := framework.NewPodInfo(next)
			testkit.Check(b, err)
			queued := &framework.QueuedPodInfo{PodInfo: info, PodSignature: p.SignPod(b.Context(), next)}
			_, err = remembering(b.Context(), p, framework.NewCycleState(), queued)
			handle(b.Context(), p, queued, fwk.NewStatus(fwk.Unschedulable).WithError(err), nil, time.Time{})
		}
	})
	b.Run("attempt", func(b *testing.B) {
		handle := handler()
		_, err := remembering(b.Context(), p, framework.NewCycleState(), queued)
		known, fit := p.refused.Load(), (*framework.FitError)(nil)
		if !errors.As(err, &fit) || known == nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			next := *pod // with a UID of its own, as no explanation is due for it
			next.UID = types.UID(fmt.Sprint(i))
			queued.PodInfo = &framework.PodInfo{Pod: &next}
			handle(b.Context(), p, queued, fwk.NewStatus(fwk.Unschedulable).WithError(fit), nil, time.Time{})
			known = known.clone() // as the next attempt does if a node has changed
			known.diagnose(&fit.Diagnosis)
			p.refused.Store(known)
		}
	})
	b.Run("explanation", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			found, err := refusals.Refusals(b.Context(), p, pod, status)
			testkit.Check(b, err)
			if root, _ := why.Explain(found, 5000); root.Code != why.InsufficientCPU {
				b.Fatal(root)
			}
		}
	})
}

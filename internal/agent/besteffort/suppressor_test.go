package besteffort_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/suppress"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/kernel"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// fataler is a test, or one case of a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// node is a machine of 2 NUMA nodes, 20 cores and 40 CPUs with a best-effort pod, be, whose limit is suppressed.
type node struct {
	fataler
	tree       *kernel.Tree
	engine     *apply.Engine
	suppressor *besteffort.Suppressor
	writes     bool
	time       time.Time
}

func (n *node) Writes() bool                     { return n.writes }
func (n *node) ReservedMilli() int64             { return 0 }
func (n *node) BatchMilli() int64                { return 0 }
func (n *node) Evictable() ([]*corev1.Pod, bool) { return nil, false }

const fewest = 2 // CPUs of best-effort pods

const bePod, beContainer = "kubepods/besteffort/podbe", "kubepods/besteffort/podbe/c"

func newNode(t fataler, dialect desired.Dialect) *node {
	t.Helper()
	m := grid.Machine{Sockets: 2, Cores: 10, Threads: 2, NodeBytes: 1 << 30}.Build(t)
	n := &node{fataler: t, writes: true}
	var err error
	n.tree, err = kernel.Open(kernel.Options{Machine: m, Dialect: dialect})
	n.must(err)
	n.begin(ledger.Facts{Machine: m, MinSharedCPUs: -1})
	n.engine.Prune(func(func(string) bool) {})
	n.add("be", qos.BEPool, bePod)
	n.add("ls", qos.SharedPool, "kubepods/podls")
	n.follow(nil)
	return n
}

// begin starts an agent.
func (n *node) begin(facts ledger.Facts) {
	n.engine = apply.New(apply.Options{Cgroup: n.tree})
	n.engine.SetFacts(facts)
	n.suppressor = besteffort.New(besteffort.Options{
		Engine: n.engine, Agent: n,
	})
}

func (n *node) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// add adds a pod whose container c runs.
func (n *node) add(uid string, role qos.Role, group string) {
	n.Helper()
	n.update(uid, role, group)
	n.must(n.tree.MkdirAll(group + "/c"))
	if n.tree.Dialect() == desired.V1 {
		for at, rest := "", strings.Split(group+"/c", "/"); len(rest) > 0; rest = rest[1:] {
			at = strings.TrimPrefix(at+"/"+rest[0], "/")
			if n.read(at, desired.CPUs) == "" {
				n.must(n.tree.Write(at, desired.CPUs, "0-39"))
				n.must(n.tree.Write(at, desired.Mems, "0"))
			}
		}
	}
	_, err := n.tree.Spawn(group + "/c")
	n.must(err)
	n.started(uid, group)
	n.must(n.engine.Reconcile())
}

func (n *node) update(uid string, role qos.Role, group string) {
	n.engine.Update(desired.Pod{
		Entry: ledger.Entry{UID: uid, Namespace: "ns", Name: uid, Role: role}, Cgroup: group,
		Batch: map[string]convert.Batch{"c": {CPU: role == qos.BEPool, MilliCPU: 1000, LimitMilliCPU: 30_000}},
	})
}

func (n *node) started(uid, group string) {
	n.engine.AddStarted(apply.Container{PodUID: uid, Name: "c", Group: group + "/c", PodGroup: group}, false)
}

// restart ends the agent and starts another one, which finds the pods of newNode.
func (n *node) restart() {
	n.Helper()
	n.begin(*n.engine.View().Facts())
	n.update("be", qos.BEPool, bePod)
	n.update("ls", qos.SharedPool, "kubepods/podls")
	n.started("be", bePod)
	n.started("ls", "kubepods/podls")
	n.engine.Prune(slices.Values([]string{"be", "ls"}))
	n.must(n.engine.Verify())
}

func (n *node) follow(s *slo.ResourceThresholdStrategy) {
	n.Helper()
	object := &slo.NodeSLO{Spec: slo.NodeSLOSpec{ResourceUsedThresholdWithBE: s}}
	if s == nil {
		object = nil
	}
	n.suppressor.Follow(object)
	n.must(n.engine.Reconcile())
}

// tick lets the LS pod use CPUs, and returns how many the best-effort container has after that.
func (n *node) tick(milli int64) int {
	n.Helper()
	return n.tickAfter(time.Second, milli)
}

// tickAfter is tick a time after the last one.
func (n *node) tickAfter(d time.Duration, milli int64) int {
	n.Helper()
	n.time = n.time.Add(d)
	n.suppressor.Tick(&usage.Sample{
		Time: n.time, Capacity: usage.Amounts{MilliCPU: 40_000},
		Pods: map[string]usage.Amounts{"ls": {MilliCPU: milli}, "be": {MilliCPU: 39_000}},
	})
	n.must(n.engine.Reconcile())
	cpus := cpuset.MustParse(n.read(beContainer, "cpuset.cpus"))
	return cpus.Len()
}

func (n *node) read(group, file string) string {
	n.Helper()
	text, err := n.tree.Read(group, file)
	n.must(err)
	return text
}

func enabled(policy slo.CPUSuppressPolicy) *slo.ResourceThresholdStrategy {
	yes := true
	return &slo.ResourceThresholdStrategy{Enable: &yes, CPUSuppressPolicy: policy}
}

func TestBestEffortPodsShrinkAtOnceAndGrowInSteps(t *testing.T) {
	t.Parallel()
	n := newNode(t, desired.V2)
	if got := n.tick(40_000); got != 40 {
		t.Fatalf("without a NodeSLO: %d CPUs, want 40", got)
	}
	n.follow(enabled(""))
	for i, step := range []struct {
		ls   int64
		want int
	}{
		{0, 26}, {20_000, 6}, {40_000, 2}, {20_000, 6}, {6000, 10}, {6000, 14}, {6000, 18}, {6000, 20}, {25_000, 2},
	} {
		if got := n.tick(step.ls); got != step.want {
			t.Errorf("step %d, with %dm of LS: %d CPUs, want %d", i, step.ls, got, step.want)
		}
	}
	const says = "2 of 40 CPUs: other pods use 25 CPUs and"
	if s := n.suppressor.State(); !s.Suppressed || !strings.Contains(s.String(), says) {
		t.Errorf("the state is %q", s)
	}
	n.follow(nil)
	if got := n.tick(40_000); got != 40 || n.suppressor.State().Suppressed {
		t.Errorf("after the NodeSLO is gone: %d CPUs, %v", got, n.suppressor.State())
	}
}

// A glance sees a load begin, and nothing else.
func TestBestEffortPodsShrinkAtAGlance(t *testing.T) {
	t.Parallel()
	n := newNode(t, desired.V2)
	object := &slo.NodeSLO{Spec: slo.NodeSLOSpec{
		ResourceUsedThresholdWithBE: enabled(""),
		HostApplications:            []slo.HostApplicationSpec{{Name: "batch", QoS: qos.BE.String()}},
	}}
	glance := func(milli int64) int {
		n.time = n.time.Add(time.Second / 2)
		n.suppressor.Glance(n.time, milli)
		n.must(n.engine.Reconcile())
		cpus := cpuset.MustParse(n.read(beContainer, "cpuset.cpus"))
		return cpus.Len()
	}
	if got := glance(40_000); got != 40 {
		t.Errorf("without a NodeSLO: %d CPUs, want 40", got)
	}
	n.suppressor.Follow(object)
	if got := glance(40_000); got != 40 {
		t.Errorf("before a sample: %d CPUs, want 40", got)
	}
	n.time = n.time.Add(time.Second)
	n.suppressor.Tick(&usage.Sample{
		Time: n.time, Capacity: usage.Amounts{MilliCPU: 40_000}, System: usage.Amounts{MilliCPU: 2000},
		Pods:  map[string]usage.Amounts{"ls": {MilliCPU: 10_000}},
		Hosts: map[string]usage.Amounts{"batch": {MilliCPU: 5000}},
	})
	for i, step := range []struct {
		milli int64
		want  int
	}{{5000, 14}, {15_000, 14}, {19_000, 10}, {15_000, 10}, {40_000, 2}} {
		if got := glance(step.milli); got != step.want {
			t.Errorf("step %d, at a glance of %dm: %d CPUs, want %d", i, step.milli, got, step.want)
		}
	}
	n.follow(enabled(""))
	if got := n.tickAfter(time.Second/2, 0); got != 2 {
		t.Errorf("half a second later: %d CPUs, want 2", got)
	}
}

// However often the node is measured, best-effort pods grow by a step a second, and shrink at once.
func TestBestEffortPodsGrowOnceASecond(t *testing.T) {
	t.Parallel()
	n := newNode(t, desired.V2)
	n.follow(enabled(""))
	n.tick(25_000)
	for i, step := range []struct {
		after time.Duration
		ls    int64
		want  int
	}{
		{500 * time.Millisecond, 0, 2},
		{499 * time.Millisecond, 0, 6},
		{500 * time.Millisecond, 0, 6},
		{501 * time.Millisecond, 0, 10},
		{400 * time.Millisecond, 20_000, 6},
		{400 * time.Millisecond, 0, 6},
		{-time.Hour, 0, 10}, // the clock went back
	} {
		if got := n.tickAfter(step.after, step.ls); got != step.want {
			t.Errorf("step %d, %v later with %dm of LS: %d CPUs, want %d", i, step.after, step.ls, got, step.want)
		}
	}
}

func TestTheQuotaPolicyBoundsTheGroupOfBestEffortPods(t *testing.T) {
	t.Parallel()
	for _, dialect := range []desired.Dialect{desired.V1, desired.V2} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, dialect)
			file, lifted := dialect.Quota()
			quota := func(group string) string {
				word, _, _ := strings.Cut(n.read(group, file), " ")
				return word
			}
			n.follow(enabled(slo.CPUCfsQuotaPolicy))
			for _, step := range []struct {
				ls         int64
				want, pods string
			}{
				{0, "2600000", "2600000"},
				{25_900, "10000", "10000"},
				{40_000, "2000", "2000"}, // less than 1 % of the node less
				{0, "402000", "402000"},
				{25_000, "100000", "100000"},
				{0, "500000", "500000"},
			} {
				if got := n.tick(step.ls); got != 40 {
					t.Errorf("%d CPUs, want all", got)
				}
				got, leaf := quota("kubepods/besteffort"), quota(beContainer)
				if got != step.want || leaf != step.pods {
					t.Errorf("with %dm of LS: quotas %s, %s, want %s, %s", step.ls, got, leaf, step.want, step.pods)
				}
			}
			n.follow(nil)
			if got, leaf := quota("kubepods/besteffort"), quota(beContainer); got != lifted || leaf != "3000000" {
				t.Errorf("after the NodeSLO is gone: quotas %s and %s", got, leaf)
			}
			// An LS pod in that group would be throttled too.
			n.follow(enabled(slo.CPUCfsQuotaPolicy))
			n.add("odd", qos.SharedPool, "kubepods/besteffort/pododd")
			if got := n.tick(40_000); got != 2 || quota("kubepods/besteffort") != lifted {
				t.Errorf("beside an LS pod: %d CPUs, quota %s", got, quota("kubepods/besteffort"))
			}
			if s := n.suppressor.State(); !strings.Contains(s.String(), "by cpuset") {
				t.Errorf("the state is %q", s)
			}
		})
	}
}

func TestBestEffortPodsAreNotWidenedWhileTheNodeSLOIsNotKnown(t *testing.T) {
	t.Parallel()
	n := newNode(t, desired.V2)
	n.follow(enabled(""))
	n.tick(40_000)
	n.restart()
	before := n.read(beContainer, "cpuset.cpus")
	if cpus := cpuset.MustParse(before); cpus.Len() != 2 {
		t.Errorf("before the NodeSLO is known: %s, want 2 CPUs", before)
	}
	n.follow(nil)
	if got := n.read(beContainer, "cpuset.cpus"); got != "0-39" {
		t.Errorf("without a NodeSLO: %s, want 0-39", got)
	}
}

// A quota is kept while the agent is away, until the next one has measured, and is then what that measurement leaves.
func TestTheQuotaOfBestEffortPodsOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	for _, dialect := range []desired.Dialect{desired.V1, desired.V2} {
		n := newNode(t, dialect)
		file, _ := dialect.Quota()
		want := func(when, want string) {
			t.Helper()
			for _, group := range []string{"kubepods/besteffort", beContainer} {
				if group == beContainer && dialect == desired.V2 {
					continue // a v2 kernel lets it have a larger one, without effect
				}
				if got, _, _ := strings.Cut(n.read(group, file), " "); got != want {
					t.Errorf("%v, %s: the quota of %s is %s, want %s", dialect, when, group, got, want)
				}
			}
		}
		n.follow(enabled(slo.CPUCfsQuotaPolicy))
		n.tick(25_000)
		want("beside 25 of 26 CPUs", "100000")
		n.restart()
		want("the next agent knows no NodeSLO", "100000")
		n.follow(enabled(slo.CPUCfsQuotaPolicy))
		want("it has not measured", "100000")
		n.tick(20_000)
		want("beside 20 CPUs", "600000")
	}
}

func TestMeasurementsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	percent := func(n int64) *int64 { return &n }
	type amounts = map[string]usage.Amounts
	capacity := usage.Amounts{MilliCPU: 40_000}
	for name, test := range map[string]struct {
		sample usage.Sample
		want   int
	}{
		"bad: an empty sample":         {usage.Sample{}, 40},
		"bad: a negative capacity":     {usage.Sample{Capacity: usage.Amounts{MilliCPU: -1}}, 40},
		"bad: a negative use":          {usage.Sample{Capacity: capacity, System: usage.Amounts{MilliCPU: -9}}, 26},
		"pods that vanished":           {usage.Sample{Capacity: capacity, Pods: amounts{}}, 26},
		"a pod that is not in the API": {usage.Sample{Capacity: capacity, Pods: amounts{"x": {MilliCPU: 90_000}}}, 2},
		"an application":               {usage.Sample{Capacity: capacity, Hosts: amounts{"db": {MilliCPU: 20_000}}}, 6},
	} {
		n := newNode(t, desired.V2)
		n.follow(enabled(""))
		test.sample.Time = time.Unix(1, 0)
		n.suppressor.Tick(&test.sample)
		n.must(n.engine.Reconcile())
		cpus := cpuset.MustParse(n.read(beContainer, "cpuset.cpus"))
		if cpus.Len() != test.want {
			t.Errorf("%s: %d CPUs, want %d", name, cpus.Len(), test.want)
		}
	}
	for name, test := range map[string]struct {
		threshold int64
		want      int
	}{"bad: -1 %": {-1, 2}, "bad: 101 %": {101, 40}, "0 %": {0, 2}} {
		n := newNode(t, desired.V2)
		s := enabled("")
		s.CPUSuppressThresholdPercent = percent(test.threshold)
		n.follow(s)
		if got := n.tick(0); got != test.want {
			t.Errorf("%s: %d CPUs, want %d", name, got, test.want)
		}
	}
}

// TestBestEffortPodsNeverHaveMoreThanIsLeft follows random loads: after each tick the set is at most what other pods
// leave, or the minimum, and never has a CPU of an LSE pod.
func TestBestEffortPodsNeverHaveMoreThanIsLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := newNode(t, desired.V2)
		n.follow(enabled(""))
		for i := range rapid.IntRange(1, 8).Draw(t, "ticks") {
			if rapid.IntRange(0, 3).Draw(t, "bind") == 0 {
				n.engine.Update(desired.Pod{Entry: ledger.Entry{
					UID: fmt.Sprint("lse", i), Role: qos.Exclusive, Class: qos.LSE, CPUList: fmt.Sprint(i, ",", i+20),
				}})
			}
			ls := rapid.Int64Range(0, 40_000).Draw(t, "ls")
			got := n.tick(ls)
			if got > max(int(26_000-ls)/1000, fewest) {
				t.Fatalf("%d CPUs beside %dm of LS", got, ls)
			}
			cpus, lse := cpuset.MustParse(n.read(beContainer, "cpuset.cpus")), n.engine.View().LSE()
			if cpus.Overlaps(&lse) {
				t.Fatalf("CPUs %v with LSE on %v", cpus, lse)
			}
		}
	})
}

func TestReasonOfTheCondition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state besteffort.State
		want  string
	}{
		"other pods use CPUs": {
			besteffort.State{Suppressed: true, Use: suppress.Use{NonBE: 50}}, "OtherPodsUseTheNode",
		},
		"the strategy alone": {
			besteffort.State{Suppressed: true, Use: suppress.Use{NonBE: 49}}, "CPUSuppressThreshold",
		},
		"they have the whole pool": {besteffort.State{}, "OtherPodsUseTheNode"},
	} {
		if got := c.state.Reason(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

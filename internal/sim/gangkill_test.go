package sim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
	"github.com/tenon-project/tenon/internal/testkit"
)

// The steps of a transaction.
const (
	pull     = "S1 pull"
	snapshot = "S2 snapshot"
	amounts  = "S3 quota"
	plan     = "S4 nodes and devices"
	commit   = "S5 commit"
	drain    = "S6 drain"
	bindStep = "S7 bind"
	release  = "S8 give back"
)

// seam is called between the parts of each step of a transaction, with the pod that the part was about, if any. What
// it returns takes the place of a plugin's answer.
type seam func(step string, pod *corev1.Pod) *fwk.Status

// stepper knows which step a call is a part of.
type stepper struct {
	e        *engine
	at       seam
	planning bool // a pod is looked for a node for
}

// watchSteps puts a stepper around all that a transaction calls.
func watchSteps(e *engine, at seam) {
	s := &stepper{e: e, at: at}
	e.core.SchedulingQueue = &steppedQueue{loop.Of(e.core.Scheduler).Queue(), s}
	e.core.Cache = &steppedCache{e.core.Cache, s}
	for name, f := range e.core.Profiles {
		e.core.Profiles[name] = &steppedProfile{f, s}
	}
	schedule, fail := e.core.SchedulePod, e.core.FailureHandler
	e.core.SchedulePod = func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		p *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		s.planning = true
		defer func() { s.planning = false }()
		return schedule(ctx, f, state, p)
	}
	e.core.FailureHandler = func(ctx context.Context, f framework.Framework, p *framework.QueuedPodInfo,
		status *fwk.Status, nominating *fwk.NominatingInfo, start time.Time,
	) {
		at(release, p.Pod)
		fail(ctx, f, p, status, nominating, start)
		at(release, p.Pod)
	}
}

type steppedQueue struct {
	podqueue.Queue
	*stepper
}

func (q *steppedQueue) Take(logger klog.Logger, pod *corev1.Pod) *framework.QueuedPodInfo {
	info := q.Queue.Take(logger, pod)
	q.at(pull, pod)
	return info
}

type steppedCache struct {
	cache.Cache
	*stepper
}

func (c *steppedCache) UpdateSnapshot(logger klog.Logger, s *cache.Snapshot) error {
	err := c.Cache.UpdateSnapshot(logger, s)
	c.at(snapshot, nil)
	return err
}

func (c *steppedCache) AssumePod(logger klog.Logger, pod *corev1.Pod) error {
	err := c.Cache.AssumePod(logger, pod)
	c.at(commit, pod)
	return err
}

type steppedProfile struct {
	framework.Framework
	*stepper
}

func (p *steppedProfile) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	result, status, plugins := p.Framework.RunPreFilterPlugins(ctx, state, pod)
	step := drain
	if p.e.rounds.Planned(pod) == "" {
		step = amounts
	}
	return result, p.or(step, pod, status), plugins
}

// or returns what the seam returns, or else the status.
func (s *stepper) or(step string, pod *corev1.Pod, status *fwk.Status) *fwk.Status {
	if other := s.at(step, pod); other != nil {
		return other
	}
	return status
}

// during is a step, or the plan where a pod is looked for a node for.
func (s *stepper) during(step string) string {
	if s.planning {
		return plan
	}
	return step
}

func (p *steppedProfile) RunReservePluginsReserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node string,
) *fwk.Status {
	return p.or(p.during(commit), pod, p.Framework.RunReservePluginsReserve(ctx, state, pod, node))
}

func (p *steppedProfile) RunReservePluginsUnreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node string,
) {
	p.Framework.RunReservePluginsUnreserve(ctx, state, pod, node)
	p.at(p.during(release), pod)
}

func (p *steppedProfile) RunPermitPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	node string,
) (map[string]time.Duration, *fwk.Status) {
	waits, status := p.Framework.RunPermitPlugins(ctx, state, pod, node)
	return waits, p.or(drain, pod, status)
}

func (p *steppedProfile) AddWaitingPod(pod *corev1.Pod, waits map[string]time.Duration) {
	p.Framework.AddWaitingPod(pod, waits)
	p.at(drain, pod)
}

func (p *steppedProfile) RunBindPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string,
) *fwk.Status {
	p.at(bindStep, pod)
	return p.or(bindStep, pod, p.Framework.RunBindPlugins(ctx, state, pod, node))
}

// worldOf is the world of a text, where pods that an API server has are as it has them.
func worldOf(t *testing.T, in string, has map[string]*corev1.Pod) *world {
	t.Helper()
	docs, err := readDocuments([]string{stdin}, strings.NewReader(in), io.Discard)
	testkit.Check(t, err)
	w, err := Input{Warn: io.Discard}.readWorld(docs)
	testkit.Check(t, err)
	pending := w.pending
	w.pending = nil
	for _, p := range pending {
		if pod := has[p.Name]; pod != nil {
			p.Pod = pod.DeepCopy()
		}
		if p.Spec.NodeName != "" {
			w.existing = append(w.existing, p)
		} else {
			w.pending = append(w.pending, p)
		}
	}
	return w
}

// podsOf is what the API server of an engine has, by name.
func podsOf(e *engine) map[string]*corev1.Pod {
	pods := map[string]*corev1.Pod{}
	for _, o := range e.api.pods.GetStore().List() {
		p := o.(*corev1.Pod)
		pods[p.Name] = p
	}
	return pods
}

// account is what an engine knows to be taken: CPUs, NUMA nodes and devices of each node, and quotas.
type account struct {
	views  map[string]*ledger.View
	quotas uint64
	cached string // by the scheduler's own cache
}

func accountOf(e *engine) account {
	a := account{views: map[string]*ledger.View{}}
	for _, name := range e.store.Nodes() {
		a.views[name] = e.store.View(name)
	}
	e.quotas.Read(func(all *quota.Account) { a.quotas = all.Hash() })
	dump := e.core.Cache.Dump()
	a.cached = fmt.Sprint("assumed ", dump.AssumedPods.UnsortedList())
	for _, name := range slices.Sorted(maps.Keys(dump.Nodes)) {
		r := dump.Nodes[name].GetRequested()
		a.cached += fmt.Sprintf("; %s has %d pods with %d milli-CPU, %d bytes", name, len(dump.Nodes[name].GetPods()),
			r.GetMilliCPU(), r.GetMemory())
		for _, resource := range slices.Sorted(maps.Keys(r.GetScalarResources())) {
			if amount := r.GetScalarResources()[resource]; amount != 0 { // those of former pods are zero
				a.cached += fmt.Sprintf(", %d %s", amount, resource)
			}
		}
	}
	return a
}

// differ says what two accounts disagree about.
func (a account) differ(o account) (what []string) {
	for name, v := range a.views {
		if !v.Equal(o.views[name]) {
			what = append(what, "node "+name)
		}
	}
	if a.quotas != o.quotas {
		what = append(what, "quotas")
	}
	if a.cached != o.cached {
		what = append(what, "the scheduler's cache: "+a.cached+"; "+o.cached)
	}
	return what
}

// transaction is a group of two gangs whose five members each bind CPUs, four of them with a GPU, in a quota that just
// holds them. The nodes have four GPUs.
func transaction(single, more string) string {
	const devices = "{type: gpu, id: %s-0, minor: 0, health: true, resources: {koordinator.sh/gpu-core: 100, " +
		"koordinator.sh/gpu-memory: 80Gi}}, {type: gpu, id: %[1]s-1, minor: 1, health: true, resources: " +
		"{koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 80Gi}}"
	in := elastic(koordinator, "q", "", "{cpu: 20}", "{cpu: 20, koordinator.sh/gpu-core: 400}")
	for _, n := range []string{"n0", "n1"} {
		d := strings.Replace(deviceOf(n, fmt.Sprintf(devices, n)), "labels:",
			"annotations: {node.tenon.sh/device-mode: Own}, labels:", 1)
		in += strings.Replace(machine(n), "memory: 64Gi", "memory: 64Gi, koordinator.sh/gpu-core: 200", 1) + "\n" + d +
			"\n---"
	}
	for i := range 4 {
		in += worker(fmt.Sprint("a", i), "a", 4, 100, more)
	}
	return in + worker(single, "b", 1, 0, more)
}

// worker is a member of one of the two gangs. It binds four CPUs.
func worker(name, gangName string, least, gpus int, more string) string {
	asks := "{cpu: 4, memory: 64Mi}"
	if gpus > 0 {
		asks = fmt.Sprintf("{cpu: 4, memory: 64Mi, koordinator.sh/gpu: %d}", gpus)
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, creationTimestamp: '2026-01-01T00:00:00Z', "+
		"labels: {koordinator.sh/qosClass: LSR, quota.scheduling.koordinator.sh/name: q}%s, "+
		`gang.scheduling.koordinator.sh/groups: '["default/a","default/b"]'%s}}, `+
		"spec: {containers: [{name: c, image: i, resources: {limits: %s}}]}}\n---", name,
		strings.TrimSuffix(says(gangName, least), "}"), more, asks)
}

// atRest fails the test where an engine that has nothing to do holds more than its bound pods do.
func atRest(t *testing.T, e *engine) {
	t.Helper()
	bound := map[string]bool{}
	cpus := int64(0)
	for _, p := range podsOf(e) {
		if p.Spec.NodeName != "" {
			bound[string(p.UID)] = true
			cpus += 4000
		}
	}
	for _, name := range e.store.Nodes() {
		for entry := range e.store.View(name).Entries() {
			if !bound[entry.UID] && !entry.IsClaim() {
				t.Errorf("%s holds something on %s and is not bound", entry.UID, name)
			}
		}
	}
	if r, found := e.quotas.Report("q"); found && r.Used["cpu"] != cpus {
		t.Errorf("the quota uses %v, want %d milli-CPU", r.Used, cpus)
	}
	if pods := e.core.SchedulingQueue.InFlightPods(); len(pods) > 0 {
		t.Errorf("%d pods are in flight", len(pods))
	}
	if n := e.core.Cache.Dump().AssumedPods.Len(); n > 0 {
		t.Errorf("%d pods are assumed", n)
	}
	e.gangs.Read(func(s *gang.State) {
		for _, id := range []string{"default/a", "default/b"} {
			r, _ := s.Find(id)
			if held := r.In(gang.Waiting, gang.Returning, gang.Allowed); len(held) > 0 {
				t.Errorf("gang %s holds %+v", id, held)
			}
		}
	})
}

// killed runs an engine until the call of a step with this number, where all that runs of it ends. It returns what the
// API server had at that moment, and the steps that were called. An engine that is not killed returns its result.
func killed(t *testing.T, in string, call int) (api map[string]*corev1.Pod, steps []string, r Result) {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, in, nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	watchSteps(e, func(step string, _ *corev1.Pod) *fwk.Status {
		if api == nil {
			if steps = append(steps, step); len(steps) != call {
				return nil
			}
			api = podsOf(e) // what is written from now on is lost with this API server
		}
		runtime.Goexit()
		return nil
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err = e.decide(ctx, w, io.Discard)
	}()
	<-ended
	testkit.Check(t, err)
	if api == nil {
		api = podsOf(e)
		atRest(t, e)
	}
	return api, steps, r
}

// TestASchedulerThatDiesInATransaction is killed at each call of each step. Another one that finds what the API server
// has then knows of no reservation, and starts the rest of the group before an older pod that wants the room of it.
//
// F3: a permit races a later failure, and a gang starts in part.
// F5: members that are left of a gang that has begun never start.
func TestASchedulerThatDiesInATransaction(t *testing.T) {
	const nonStrict = ", gang.scheduling.koordinator.sh/mode: NonStrict"
	for mode, in := range map[string]string{
		"Strict": transaction("b0", ""), "NonStrict": transaction("b0", nonStrict),
		"Strict, the single one first": transaction("a-0", ""),
	} {
		_, steps, r := killed(t, in, 0)
		for _, p := range r.Pods {
			if p.State != Scheduled {
				t.Fatalf("%s: without a kill %s is %s %v", mode, p.Name, p.State, p.Reasons)
			}
		}
		for _, step := range []string{pull, snapshot, amounts, plan, commit, drain, bindStep} {
			if mode != "NonStrict" && !slices.Contains(steps, step) {
				t.Errorf("no call of step %s: %v", step, steps)
			}
		}
		for i, step := range steps {
			t.Run(fmt.Sprintf("%s/%s/%d", mode, step, i+1), func(t *testing.T) {
				api, _, _ := killed(t, in, i+1)
				recovers(t, in, api)
			})
		}
	}
}

// recovers lets a new engine find what another one has left.
func recovers(t *testing.T, in string, api map[string]*corev1.Pod) {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	bound := 0
	for _, p := range api {
		if p.Spec.NodeName != "" {
			bound++
		}
	}
	thief := "" // of the GPU that the gang needs
	if gpus := bound; gpus > 0 && gpus < 4 {
		thief = strings.Replace(gpuPod("thief", 1, 100, ""), "{name: thief}",
			`{name: thief, creationTimestamp: "2020-01-01T00:00:00Z"}`, 1)
	}
	w := worldOf(t, in+thief, api)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	atRest(t, e)
	if bound == 0 {
		clean, err := newEngine(ctx, worldOf(t, in, nil))
		testkit.Check(t, err)
		if what := accountOf(clean).differ(accountOf(e)); len(what) > 0 {
			t.Errorf("other accounts than before the transaction: %v", what)
		}
	}
	r, err := e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	for _, p := range r.Pods {
		want := p.Name != "thief"
		if (p.Node != "") != want {
			t.Errorf("%d were bound at the kill, and now %s is %s %v", bound, p.Name, p.State, p.Reasons)
		}
	}
	for _, g := range r.Gangs {
		if g.Bound != g.Members {
			t.Errorf("gang %+v, want all bound", g)
		}
	}
	if thief == "" {
		atRest(t, e)
	}
}

// TestATransactionThatFailsLeavesTheAccountsAsTheyWere: CPUs, NUMA nodes, devices, quotas and the scheduler's own cache
// after S8 are those before S1, whichever step fails for which member, and each member is back in the queue.
//
// F17: pods that were taken from the queue with a sibling remain in flight for ever.
func TestATransactionThatFailsLeavesTheAccountsAsTheyWere(t *testing.T) {
	for name, c := range map[string]struct {
		in        string
		step, pod string // refused, when others are reserved
	}{
		"S3: one milli-CPU less in the quota": {
			in: strings.ReplaceAll(transaction("b0", ""), "{cpu: 20", "{cpu: 19999m"),
		},
		"S4: a GPU is missing": {in: strings.Replace(transaction("b0", ""), "minor: 1, health: true", "minor: 1", 1)},
		"S4: a CPU is missing": {
			in: transaction("b0", "") + exclusive("other-0", 30, "LSR", "", "\n  nodeName: n0") +
				exclusive("other-1", 30, "LSR", "", "\n  nodeName: n1"),
		},
		"S5: the first member":  {in: transaction("b0", ""), step: commit, pod: "a0"},
		"S5: the third member":  {in: transaction("b0", ""), step: commit, pod: "a2"},
		"S5: the last member":   {in: transaction("b0", ""), step: commit, pod: "b0"},
		"S6: the second member": {in: transaction("b0", ""), step: drain, pod: "a1"},
		"S6: the last member":   {in: transaction("a-0", ""), step: drain, pod: "a3"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withoutLog(t.Context()))
			defer cancel()
			w := worldOf(t, c.in, nil)
			e, err := newEngine(ctx, w)
			testkit.Check(t, err)
			reserved := map[string]bool{}
			watchSteps(e, func(step string, pod *corev1.Pod) *fwk.Status {
				if step == commit {
					reserved[pod.Name] = true
				}
				if step == c.step && pod.Name == c.pod {
					return fwk.NewStatus(fwk.Unschedulable, "not now")
				}
				return nil
			})
			var before *account
			rounds, next := 0, e.core.NextEntity
			e.core.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
				if _, left := e.rounds.Pulled(); left == 0 {
					rounds++
					if now := accountOf(e); before == nil {
						before = &now
					} else if what := before.differ(now); len(what) > 0 {
						t.Errorf("round %d has left something: %v", rounds-1, what)
					}
				}
				return next(logger)
			}
			r, err := e.decide(ctx, w, io.Discard)
			testkit.Check(t, err)
			if before == nil {
				t.Fatal("no round")
			}
			if what := before.differ(accountOf(e)); len(what) > 0 {
				t.Errorf("%d rounds have left something: %v", rounds, what)
			}
			for _, p := range r.Pods {
				if p.Node != "" && p.State != Existing {
					t.Errorf("%s is on %s", p.Name, p.Node)
				}
			}
			if len(reserved) > 1 != (c.step != "") {
				t.Errorf("reserved were %v", reserved)
			}
			if c.in == transaction("b0", "") {
				atRest(t, e)
			}
		})
	}
}

package refusals

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/view"
)

const (
	// repeatAfter is the least time between two messages about a pod that is rejected for the same cause.
	repeatAfter = time.Minute
	// restPerRun bounds the cost of running all filters for a pod that was rejected before: they rest this many times
	// as long as their last run took, so that they take at most a tenth of the scheduler's time. The first attempt on
	// a pod does not wait for that.
	restPerRun = 9
	// Events of refusals, for the whole process.
	eventsPerSecond = 10
	eventsBurst     = 100
)

// Reporter reports why a pod was rejected: by root cause, once for each cause.
type Reporter struct {
	// PlainReasons makes Unschedulable the reason of all conditions. It does not change after the first attempt.
	PlainReasons bool
	// client writes conditions when API calls are not asynchronous. dropped counts Events that the budget did not
	// allow.
	client            clientset.Interface
	refusals, dropped *metrics.CounterVec
	// decided counts each refused attempt for the plugin of its root cause.
	decided func(plugin, result string)
	// clock is the real one but in tests. budget bounds the Events.
	clock  flowcontrol.Clock
	budget flowcontrol.RateLimiter
	// filters is what attempts explain themselves by. It is After but in tests.
	filters func(context.Context, framework.Framework, *fwk.Status) ([]why.Finding, view.Verdict, error)
	// beside is what Run explains attempts by, Refusals of a Live; nil before ExplainBeside, when all filters run
	// within the attempts. placed is Placed of the same.
	beside func(ctx context.Context, profile string, status *fwk.Status) ([]why.Finding, view.Verdict, error)
	placed func(*corev1.Pod) bool
	// describe is called with what is said of a refused pod. It does nothing before OnReport.
	describe func(pod *corev1.Pod, cause why.Finding)
	// wake has an element while Run may have something to do.
	wake chan struct{}

	mu    sync.Mutex // guards the fields below: failed binding cycles report from goroutines of their own
	rests time.Time  // until then all filters run for no pod of which they ran within a minute
	// pending has the last refusal of each pod that is not bound. latest and runs save the analysis of equal refusals.
	pending map[types.UID]attempt
	latest  single
	runs    *lru.Cache // profile and signature → filterRun
	// tried has by UID the findings of attempts on pods that some node would take by itself, as beside no other
	// members of a gang: they cannot be found again.
	tried *lru.Cache
	// due are the explanations that Run has not begun.
	due backlog
}

// attempt is the last refusal of a pod.
type attempt struct {
	analysis
	// causes is the hash of the refusal, attempts is the queue's count, at is when the refusal was reported to us.
	causes   causes
	attempts int
	at       time.Time
	// read is when the nodes' refusals were last read one by one.
	read time.Time
	// said is the message that was reported last.
	said string
	// reported is when said was reported, or a message before it with the same code.
	reported time.Time
	// due is the explanation of the last refusal, until Run has concluded it; nil for one that is explained.
	due *explanation
}

// analysis is what a refusal comes down to: its root cause, the message for people, and the codes to count.
type analysis struct {
	// root is the cause that people read first, message the text of Event and condition.
	root    why.Obstacle
	message string
	// counted are the pairs of plugin and code that the metric counts.
	counted []pluginCode
	// whole is true if all filters were run.
	whole bool
}

// single is the analysis of the last pod that was refused as such, for one reason.
type single struct {
	// finding and nodes are what the analysis is of.
	finding why.Finding
	nodes   int
	analysis
}

// filterRun is the last run of all filters for the pods of a signature. Those that are refused for the same causes
// within a minute share it: of the replicas of a Deployment that do not fit, all filters run for the first one.
type filterRun struct {
	// causes and at say for which refusals the run holds, and since when.
	causes causes
	at     time.Time
	analysis
}

// runKey is what runs are known by.
type runKey struct{ profile, signature string }

// triedKept bounds the attempts whose findings are remembered: each may have one of every node.
const triedKept = 32

// runsKept bounds the runs that are remembered.
const runsKept = 1024

// summarizer is a profile that knows how all nodes refuse a pod.
type summarizer interface {
	// Summary returns the reasons as FitError counts them, and a hash of who refuses how many nodes for which reasons;
	// false where that takes a look at each node.
	Summary(fit *framework.FitError) (reasons string, hash uint64, ok bool)
	// Retain lets the statuses be read beside the scheduling loop; false where they may depend on more than each node.
	Retain(fit *framework.FitError) bool
}

// brief returns a status with the text of one that f knows a summary of, and without the nodes: to make the text of
// these takes a pass over all nodes.
func brief(f framework.Framework, status *fwk.Status) *fwk.Status {
	fit := ByFilters(status)
	s, summarizes := f.(summarizer)
	if fit == nil || !summarizes {
		return status
	}
	reasons, _, ok := s.Summary(fit)
	if !ok {
		return status
	}
	short := &framework.FitError{Pod: fit.Pod, NumAllNodes: fit.NumAllNodes, Diagnosis: fit.Diagnosis}
	short.Diagnosis.NodeToStatus, short.Diagnosis.PreFilterMsg = framework.NewDefaultNodeToStatus(), reasons
	return fwk.NewStatus(status.Code()).WithError(short)
}

// refusal is one label pair of tenon_refusals_total.
type pluginCode struct{ plugin, code string }

// NewReporter returns a reporter with metrics. decided is called with the plugin that refused an attempt.
func NewReporter(client clientset.Interface, register func(...metrics.Registerable),
	decided func(plugin, result string), clock flowcontrol.Clock,
) *Reporter {
	r := &Reporter{
		client: client, decided: decided, clock: clock, filters: After, pending: map[types.UID]attempt{},
		describe: func(*corev1.Pod, why.Finding) {}, tried: lru.New(triedKept),
		runs: lru.New(runsKept), due: backlog{tables: map[*framework.NodeToStatus]int{}}, wake: make(chan struct{}, 1),
		budget: flowcontrol.NewTokenBucketRateLimiterWithClock(eventsPerSecond, eventsBurst, clock),
		refusals: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_refusals_total",
			Help: "Codes that refused a pod, counted once for each attempt, by plugin and code.",
		}, []string{"plugin", "code"}),
		dropped: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_events_dropped_total", Help: "Events not sent because too many were due, by reason.",
		}, []string{"reason"}),
	}
	register(r.refusals, r.dropped)
	return r
}

// OnReport sets the function that is called with the root cause and the text of each refusal. It must be called before
// the first attempt.
func (r *Reporter) OnReport(f func(pod *corev1.Pod, cause why.Finding)) { r.describe = f }

// publish calls OnReport's function for the last refusal of a pod.
func (r *Reporter) publish(pod *corev1.Pod) {
	last, known := r.last(pod.UID)
	text := strings.TrimSuffix(last.message, " "+last.root.Flat())
	if known && !last.root.OK() && last.root.Code != why.GangSiblingFailed && len(text) <= why.MaxMessage/2 {
		r.describe(pod, why.Finding{Reason: why.Reason{Code: last.root.Code}, Detail: text})
	}
}

// Own returns a verdict on a pod with the refusals of its last attempt, if the pod is the member that its gang waits
// for: beside no other members it would fit. The verdict on any other pod is returned as it is.
func (r *Reporter) Own(pod *corev1.Pod, v view.Verdict) view.Verdict {
	waits := func(f why.Finding) bool { return f.Code == why.GangSiblingFailed && f.Phase == why.Permit }
	last, attempted := r.last(pod.UID)
	if !attempted || last.root.OK() || last.root.Code == why.GangSiblingFailed ||
		!slices.ContainsFunc(v.Findings, waits) {
		return v
	}
	if findings, remembered := r.tried.Get(pod.UID); remembered {
		v.Findings, v.Feasible = slices.Clone(findings.([]why.Finding)), 0
	} else {
		v.Findings = append(slices.DeleteFunc(v.Findings, waits), last.root.Finding)
	}
	v.Notes = append(v.Notes, "the other members of the gang wait for this pod")
	return v
}

// Wrap lets upstream's handler do its work and replaces what it writes.
func (r *Reporter) Wrap(inner loop.Fail) loop.Fail {
	return func(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
		nominating *fwk.NominatingInfo, start time.Time,
	) {
		if convert.IsReservePod(pod.Pod) { // whose Reservation has a condition of its own
			inner(ctx, f, pod, status, nominating, start)
			return
		}
		causes, short := causesOf(f, status), brief(f, status)
		if r.repeats(pod, causes) {
			r.publish(pod.Pod)
			f = &reporting{Framework: f, ctx: ctx, reporter: r}
		} else if r.postpone(f, pod, status, short, causes) {
			f = &reporting{Framework: f, ctx: ctx, reporter: r}
		} else if found, ok := r.explain(ctx, f, pod, status, causes); ok {
			r.mu.Lock()
			report := r.remember(pod.Pod.UID, attempt{
				analysis: found, causes: causes, attempts: pod.Attempts, at: r.clock.Now(),
			})
			r.mu.Unlock()
			r.publish(pod.Pod)
			f = &reporting{
				Framework: f, ctx: ctx, reporter: r,
				message: found.message, reason: r.reasonOf(found.root), report: report,
			}
		}
		inner(ctx, f, pod, short, nominating, start)
	}
}

// repeats reports whether what is known of a pod is not read again: all filters ran for it less than a minute ago, and
// its attempt failed as it did then, or they rest. Nothing would be reported, or only the first refusal of each node,
// which may hide the root cause. The attempt is counted.
func (r *Reporter) repeats(pod *framework.QueuedPodInfo, c causes) bool {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.pending[pod.Pod.UID]
	if !known || c == 0 || !last.whole || now.Sub(last.read) >= repeatAfter ||
		last.causes != c && !now.Before(r.rests) {
		return false
	}
	last.attempts, last.at = pod.Attempts, now
	r.pending[pod.Pod.UID] = last
	r.count(last)
	return true
}

// count counts an attempt in metrics. The caller holds mu.
func (r *Reporter) count(a attempt) {
	r.decided(a.root.Plugin, "refused")
	for _, c := range a.counted {
		r.refusals.WithLabelValues(c.plugin, c.code).Inc()
	}
}

// explain analyzes a refusal, or recalls what was found for a pod of the same signature; false for another failure. It
// adds the refusals of the other filters to each node's first one, which may hide the root cause that explain finds.
func (r *Reporter) explain(ctx context.Context, f framework.Framework, pod *framework.QueuedPodInfo, status *fwk.Status,
	c causes,
) (analysis, bool) {
	start, key := r.clock.Now(), runKey{f.ProfileName(), string(pod.PodSignature)}
	if found, ran := r.recall(key, c, start); ran {
		return found, true
	}
	if ByFilters(status) == nil {
		switch findings, nodes := Attempt(f, pod.Pod, status); len(findings) {
		case 0:
			return analysis{}, false
		case 1:
			return r.analyzeSingle(findings[0], nodes), true
		default:
			return analyze(findings, nil, nodes), true
		}
	}
	first, v, err := r.filters(ctx, f, status)
	if len(first) == 0 {
		return analysis{}, false
	}
	found := r.analyzeRun(ctx, first, v, status, err)
	if err == nil && v.Feasible > 0 {
		r.tried.Add(pod.Pod.UID, Completed(slices.Clone(v.Findings), first))
	}
	r.ran(key, filterRun{c, start, found})
	return found, true
}

// analyzeRun is analyze for a run of all filters after an attempt, which may have failed.
func (r *Reporter) analyzeRun(ctx context.Context, first []why.Finding, v view.Verdict, status *fwk.Status, err error,
) analysis {
	fit := fitOf(status)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Filters failed for rejected pod", "pod", klog.KObj(fit.Pod), "err", err)
		return analyze(first, nil, fit.NumAllNodes)
	}
	found := analyze(first, v.Findings, v.Nodes)
	found.whole = true
	return found
}

// recall returns the analysis that a run of all filters led to for equal refusals within the last minute.
func (r *Reporter) recall(key runKey, c causes, now time.Time) (analysis, bool) {
	last, ran := r.runs.Get(key)
	if !ran || key.signature == "" {
		return analysis{}, false
	}
	run := last.(filterRun)
	return run.analysis, c != 0 && run.causes == c && now.Sub(run.at) < repeatAfter
}

// ran notes a run of all filters that has just ended.
func (r *Reporter) ran(key runKey, run filterRun) {
	end := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rests = end.Add(restPerRun * end.Sub(run.at))
	if run.whole && key.signature != "" {
		r.runs.Add(key, run)
	}
}

// analyze returns the analysis of an attempt's findings, and of those of all filters, on this many nodes.
func analyze(first, all []why.Finding, nodes int) analysis {
	found := analysis{counted: counted(first)}
	found.root, found.message = why.Explain(Completed(all, first), nodes)
	return found
}

// counted returns each pair of plugin and code once.
func counted(findings []why.Finding) (pairs []pluginCode) {
	for _, o := range why.Obstacles(findings) {
		pairs = append(pairs, pluginCode{o.Plugin, o.Code.String()})
	}
	return pairs
}

// analyzeSingle is analyze for one finding about no node. The members of a gang are refused one after the other in the
// same words, which are analyzed once.
func (r *Reporter) analyzeSingle(finding why.Finding, nodes int) analysis {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest.finding != finding || r.latest.nodes != nodes {
		r.latest = single{finding, nodes, analyze([]why.Finding{finding}, nil, nodes)}
	}
	return r.latest.analysis
}

// remember records and counts the refusal of a pod, and reports whether it is to be written: it is the first, its root
// cause has another code, or its message has changed and the last one is a minute old.
// The caller holds mu.
func (r *Reporter) remember(pod types.UID, next attempt) bool {
	now := r.clock.Now()
	next.read, next.said, next.reported = now, next.message, now
	r.count(next)
	last := r.pending[pod]
	// why a whole gang waits is written beside the scheduling cycle, a few members at a time
	report := next.root.Code != why.GangSiblingFailed && (last.said == "" || last.root.Code != next.root.Code ||
		last.said != next.said && now.Sub(last.reported) >= repeatAfter)
	if !report {
		next.said, next.reported = last.said, last.reported
	}
	r.pending[pod] = next
	return report
}

// last returns the last refusal of a pod.
func (r *Reporter) last(uid types.UID) (attempt, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.pending[uid]
	return a, ok
}

// forget drops what is known of a pod.
func (r *Reporter) forget(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, pod.UID)
	r.tried.Remove(pod.UID)
}

// byCode counts the pods that are refused by the code of their root cause.
func (r *Reporter) byCode() map[why.Code]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := map[why.Code]int{}
	for _, a := range r.pending {
		if !a.root.OK() { // OK before the first explanation
			counts[a.root.Code]++
		}
	}
	return counts
}

// ForgetDeleted forgets pods that are deleted before they are bound, or bound by another scheduler.
func (r *Reporter) ForgetDeleted(pods cache.SharedIndexInformer) {
	bound := func(pod *corev1.Pod) {
		if pod.Spec.NodeName != "" {
			r.forget(pod)
		}
	}
	_, _ = pods.AddEventHandler(kube.Handler(bound, r.forget)) // fails only on an informer that has ended
}

// Queue is the scheduling queue by its parts.
type Queue interface {
	PodsInActiveQ() []*corev1.Pod
	PodsInBackoffQ() []*corev1.Pod
	UnschedulablePods() []*corev1.Pod
	InFlightPods() []*corev1.Pod
}

// Queued returns the state of a pod in the scheduling queue q, whose back-offs c sets; nil for what is made of a
// Reservation, whose attempts are not counted: its object says what it waits for.
func (r *Reporter) Queued(pod *corev1.Pod, q Queue, c *config.Scheduler) *view.Queue {
	if convert.IsReservePod(pod) {
		return nil
	}
	holds := func(pods []*corev1.Pod) bool {
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	}
	active := q.PodsInActiveQ()
	out := &view.Queue{Length: len(active)}
	last, attempted := r.last(pod.UID)
	switch {
	case holds(active):
		out.Place = "active"
	case holds(q.PodsInBackoffQ()):
		out.Place = "backoff"
	case holds(q.UnschedulablePods()) && (!attempted || len(pod.Spec.SchedulingGates) > 0):
		out.Place = "gated" // only a gate, or a plugin before the queue, brings a pod there without an attempt
	case holds(q.UnschedulablePods()):
		out.Place = "unschedulable"
	case holds(q.InFlightPods()):
		out.Place = "scheduling"
	}
	if attempted {
		out.Attempts, out.LastAttempt = last.attempts, &last.at
		if out.Place == "backoff" {
			next := last.at.Add(backoff(c, last.attempts))
			out.NextTry = &next
		}
	}
	return out
}

// backoff is how long the queue holds a pod back after so many attempts.
func backoff(c *config.Scheduler, attempts int) time.Duration {
	d, most := time.Duration(c.PodInitialBackoffSeconds)*time.Second, time.Duration(c.PodMaxBackoffSeconds)*time.Second
	for ; attempts > 1 && d < most; attempts-- {
		d *= 2
	}
	return min(d, most)
}

// causes is a hash of the refusals of nodes, without numbers and names: as long as it is the same, so is the reported
// cause, and reading every refusal costs ten times as much. 0: the attempt failed for another reason.
type causes uint64

// causeSeed makes hashes of causes comparable within the process.
var causeSeed = maphash.MakeSeed()

// causesOf returns the hash for a failed attempt. A profile with a summary of its nodes saves the pass over all of
// them.
func causesOf(f framework.Framework, status *fwk.Status) causes {
	fit := ByFilters(status)
	if fit == nil {
		return 0
	}
	sum := maphash.String(causeSeed, fit.Diagnosis.PostFilterMsg)
	if s, summarizes := f.(summarizer); summarizes {
		if _, hash, ok := s.Summary(fit); ok {
			return causes(max(sum+hash, 1))
		}
	}
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0
	}
	for _, n := range nodes {
		refused := fit.Diagnosis.NodeToStatus.Get(n.Node().Name)
		cause := maphash.String(causeSeed, refused.Plugin())
		for _, text := range refused.Reasons() {
			cause = 31*cause + maphash.String(causeSeed, text)
		}
		sum += cause // a sum: the order of nodes is of no account
	}
	return causes(max(sum, 1))
}

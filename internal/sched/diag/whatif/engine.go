package whatif

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/forecast"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/view"
)

// deadline bounds an answer, the wait for another one included, unless the engine has another one.
const deadline = 2 * time.Second

// waiting bounds the questions that are answered or wait; more are refused.
const waiting = 2

// Trial is the accounts of nodes, as they would be with other pods.
type Trial interface {
	// Mark makes a cycle read and reserve on the trial alone.
	Mark(cs fwk.CycleState)
	// Account returns the account of a node.
	Account(node string) *ledger.View
	// Take takes a pod off the account of a node, Put adds what a pod has.
	Take(node, uid string)
	Put(node string, e ledger.Entry)
	// Add adds the account of a node that is like another one without pods, Imagine that of any other.
	Add(node, like string)
	Imagine(node string, v *ledger.View)
	// Likeness returns a text that two nodes share only if their accounts grant and refuse the same to each pod; "" for
	// a node that is like no other.
	Likeness(node string) string
	// Next makes a cycle, whose PreFilter has run, about another pod that differs in its UID alone.
	Next(cs fwk.CycleState, uid string)
}

// Quotas are quotas and what pods hold of them, as they would be.
type Quotas interface {
	// Mark makes a cycle ask these.
	Mark(cs fwk.CycleState)
	// Set sets min and max of a quota in the dimensions that are named. It returns what is wrong, "" for nothing.
	Set(name string, least, most corev1.ResourceList) (wrong string)
	// Put counts a pod that waits, Reserve makes it hold what it asks for, Remove forgets it.
	Put(pod *corev1.Pod)
	Reserve(uid string)
	Remove(uid string)
	// PutClaim counts a ResourceClaim.
	PutClaim(c *resourcev1.ResourceClaim)
	// Most returns how many pods, at most limit, are admitted one after the other that ask for what a pod asks for,
	// each with own ResourceClaims, and which quota does not admit one more, and why; nil for limit.
	Most(pod *corev1.Pod, own []*resourcev1.ResourceClaim, limit int) (n int, name string, refused *fwk.Status)
	// Limit returns why a pod is not admitted, with its gang; nil for one that is.
	Limit(uid string) *view.QuotaLimit
}

// Limits are the LimitRanges and ResourceQuotas of a namespace, with what is used.
type Limits interface {
	// AdmitWithClaims returns why the API server refuses to create a pod, or a claim of its ephemeral volumes. A pod
	// that it admits counts from then on.
	AdmitWithClaims(pod *corev1.Pod) error
	// Release takes a pod out of what is used.
	Release(pod *corev1.Pod)
	// Most returns how many pods equal to one, at most limit, are admitted one after the other, and why one more is
	// not; nil for limit. None of them counts.
	Most(pod *corev1.Pod, limit int) (n int, refused error)
}

// Nodes are the scheduler's nodes as of the last update.
type Nodes interface {
	fwk.SharedLister
	// Update takes over the nodes as the scheduler has them now.
	Update(logger klog.Logger) error
}

// Cluster is what an Engine reads of the scheduler. Its methods change nothing.
type Cluster struct {
	// Nodes are the scheduler's, a snapshot of the engine's own.
	Nodes Nodes
	Store *kube.Store
	Held  *kube.Quotas
	Gangs *kube.Gangs
	// Nominated are the pods that are nominated to nodes.
	Nominated fwk.PodNominator
	Clock     Clock
	Objects
	Accounts
	Cycles
}

// Clock says what time it is.
type Clock interface{ Now() time.Time }

// Objects are objects of the API.
type Objects interface {
	// Pod returns a pod, nil when there is none.
	Pod(namespace, name string) *corev1.Pod
	// Waiting returns the pods that have no node and that a profile serves.
	Waiting() []*corev1.Pod
	// Limits returns the LimitRanges and ResourceQuotas of a namespace as the API server has them.
	Limits(ctx context.Context, namespace string) (Limits, error)
	// Jobs returns the Jobs of the cluster by namespace/name, Succeeded the pods that have succeeded, as the API server
	// has them.
	Jobs(ctx context.Context) (map[string]*batchv1.Job, error)
	Succeeded(ctx context.Context) ([]corev1.Pod, error)
}

// Accounts are what nodes and quotas have, and what is used of it.
type Accounts interface {
	// Trial returns the accounts of the nodes as they are, and drops the ResourceClaims of the last one. Quotas returns
	// those of the quotas.
	Trial() Trial
	Quotas() Quotas
	// OpenClaims returns the ResourceClaims of a pod that have no devices, and the names of all device classes.
	// ChangeClaim replaces one until the next Trial.
	OpenClaims(pod *corev1.Pod) (claims []*resourcev1.ResourceClaim, classes []string)
	ChangeClaim(claim *resourcev1.ResourceClaim)
	// Arrive creates and returns the ResourceClaims that a pod of the question has of templates, whose specs are those
	// of a like pod, nil for none. Leave ends the use of claims by a pod that leaves; both until the next Trial.
	Arrive(ctx context.Context, pod, like *corev1.Pod) (own []*resourcev1.ResourceClaim, err error)
	Leave(t Trial, pod *corev1.Pod)
	// Lost returns what says how much of a node's free GPUs, or of the free CPUs of its NUMA nodes, is unusable for
	// the pods that are expected, in thousandths of a GPU or of a NUMA node; the last argument is the node's free
	// milli-CPU.
	Lost() func(t Trial, node *corev1.Node, milliCPU int64) int64
}

// Cycles are the scheduler's cycles on other nodes.
type Cycles interface {
	// Profiles makes the profiles of the scheduler, by scheduler name. They share no plugin with it.
	Profiles(fwk.SharedLister) (map[string]framework.Framework, error)
	// Admit marks a cycle whose pod is not compared with its quota.
	Admit(cs fwk.CycleState)
	// Exclude leaves Reservations out of a cycle, by UID.
	Exclude(cs fwk.CycleState, reservations map[string]bool)
	// Reserve reserves CPUs, devices and ResourceClaims on the trial of a cycle. It returns what writes annotations on
	// the pod, and the Reservation whose room it uses, "" for none.
	Reserve(ctx context.Context, f framework.Framework, cs fwk.CycleState, pod *corev1.Pod, node string,
	) (record func() map[string]string, within string, status *fwk.Status)
	// Describe returns what a pod of a cycle has on its node, where it was reserved on trial.
	Describe(cs fwk.CycleState, t Trial, pod *corev1.Pod) *view.Placement
	// Preemption returns what chooses victims for a profile, nil for one that does not preempt.
	Preemption(f framework.Framework) Chooser
}

// Chooser chooses victims.
type Chooser interface {
	// MayPreempt reports whether a pod may have victims.
	MayPreempt(ctx context.Context, pod *corev1.Pod) bool
	// Budgets returns all disruption budgets of the cluster.
	Budgets() ([]*policyv1.PodDisruptionBudget, error)
	// Best returns the node that preemption prefers among those that refuse the pod of a cycle, all of which are tried,
	// and the victims there; no victims if they help on none.
	Best(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo,
		budgets []*policyv1.PodDisruptionBudget) (node string, victims []*corev1.Pod, err error)
}

// Engine answers questions, one after the other. Safe for concurrent use.
type Engine struct {
	Cluster
	// Deadline bounds an answer. Learn lets forecasts use the run times of pods that have ended. Neither is changed
	// after the first question.
	Deadline time.Duration
	Learn    bool

	fixing chan struct{} // holds a value while fixes are looked for; whoever put it there owns known
	known  map[string]knownFixes
	turn   chan struct{} // holds a value for each question that is answered or waits
	alone  chan struct{} // holds a value while a question is answered; whoever put it there owns what follows

	// nodes is the snapshot with the changes of the session under way.
	nodes    *nodes
	profiles map[string]framework.Framework // nil before the first question: most processes are never asked
	round    int64                          // times that the snapshot was taken
	patches  int64                          // of pods, by all sessions
	last     *view.Forecast                 // the last one; nil before
	history  *forecast.History              // of the pods that have ended
}

// New returns an engine.
func New(c Cluster) *Engine {
	return &Engine{
		Cluster: c, Deadline: deadline, turn: make(chan struct{}, waiting), alone: make(chan struct{}, 1),
		fixing: make(chan struct{}, 1), known: map[string]knownFixes{},
		nodes: &nodes{Nodes: c.Nodes}, history: forecast.NewHistory(workloads, runsOfEach),
	}
}

// BadQuestion is an error of the one who asks.
type BadQuestion struct{ Text string }

// Error returns the text.
func (b *BadQuestion) Error() string { return b.Text }

// bad returns a BadQuestion.
func bad(format string, args ...any) error { return &BadQuestion{fmt.Sprintf(format, args...)} }

// Busy is the error of a question that comes while as many as are allowed are answered.
type Busy struct{}

// Error returns the text.
func (Busy) Error() string { return fmt.Sprintf("%d questions are being answered; ask again", waiting) }

// Answer answers a question. A question that cannot be answered is a *BadQuestion; Busy is to be asked again.
func (e *Engine) Answer(ctx context.Context, q *view.WhatIf) (answer *view.WhatIfAnswer, err error) {
	err = e.session(ctx, func(s *session) (err error) {
		answer, err = s.answer(q)
		return err
	})
	return answer, err
}

// session calls f with a session of its own.
func (e *Engine) session(ctx context.Context, f func(*session) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.Deadline)
	defer cancel()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	default:
		return Busy{}
	}
	select {
	case e.alone <- struct{}{}:
		defer func() { <-e.alone }()
	case <-ctx.Done():
		return e.late()
	}
	s, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer e.nodes.reset()
	// An error after the deadline is most often the end of the context.
	if err = f(s); ctx.Err() != nil {
		return e.late()
	}
	return err
}

// late is the error of a question that took longer than the deadline.
func (e *Engine) late() error {
	return fmt.Errorf("not answered within %s: ask about fewer pods", e.Deadline)
}

// searchTime bounds a search: an answer has the deadline, and says why pods fit nowhere where nothing is found.
func (e *Engine) searchTime() time.Duration { return e.Deadline * 3 / 4 }

// begin starts a session on the nodes as the scheduler has them now.
func (e *Engine) begin(ctx context.Context) (*session, error) {
	e.nodes.reset()
	if e.profiles == nil {
		profiles, err := e.Profiles(e.nodes)
		if err != nil {
			return nil, fmt.Errorf("make the plugins for questions: %w", err)
		}
		for _, f := range profiles {
			f.SetPodNominator(nominations{e.Nominated, e.nodes})
		}
		e.profiles = profiles
	}
	if err := e.Nodes.Update(klog.FromContext(ctx)); err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", err)
	}
	e.round++
	s := &session{Engine: e, ctx: ctx}
	s.restart()
	return s, nil
}

// profile returns the profile for a pod; a BadQuestion for a pod of another scheduler.
func (e *Engine) profile(pod *corev1.Pod) (framework.Framework, error) {
	f := e.profiles[pod.Spec.SchedulerName]
	if f == nil {
		return nil, bad("pod %s/%s: spec.schedulerName is %q; this scheduler serves %q", pod.Namespace, pod.Name,
			pod.Spec.SchedulerName, slices.Sorted(maps.Keys(e.profiles)))
	}
	return f, nil
}

// Members returns the pods of a gang, namespace/name, by name.
func (e *Engine) Members(id string) []*corev1.Pod {
	members := e.Gangs.Pods(func(p *corev1.Pod, state *gang.State) bool { return state.GangOf(string(p.UID)) == id })
	slices.SortFunc(members, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return members
}

// gang returns a gang, and how its members must be placed, "" if they may be anywhere; nil for one that does not exist.
func (e *Engine) gang(id string) (g *view.Gang, rule string) {
	e.Gangs.Read(func(state *gang.State) {
		if g = view.GangOf(state, id); g == nil {
			return
		}
		known, _ := state.Find(id)
		for i, r := range known.Settings.DomainRules {
			if r.Must || r.Multiple > 0 {
				rule = g.Network[i]
			}
		}
	})
	return g, rule
}

// admitsAgain reports whether the quotas of bound pods have room for what the pods hold once more, all together.
func (e *Engine) admitsAgain(uids ...string) bool {
	return kube.Ask(e.Held, func(a *quota.Account) *quota.Excess { return a.AdmitAgain(uids...) }) == nil
}

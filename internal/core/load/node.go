package load

import (
	"iter"
	"time"

	"github.com/tenon-project/tenon/internal/core/amount"
)

// Pod is a pod that is assigned to a node.
type Pod struct {
	UID      string
	Name     string // namespace/name, as reports have it
	Estimate amount.Pair
	Prod     bool // counts in the use of production pods
	Assigned time.Time
	// Until is the end of a time in which the estimate counts beside the use that a report has; zero for none.
	Until time.Time
	// Initializing is set for a pod whose such time begins when its init containers have ended, until they have.
	Initializing bool
}

// Statistic is which value of a time counts.
type Statistic string

// Statistics.
const (
	Average Statistic = "avg"
	P50     Statistic = "p50"
	P90     Statistic = "p90"
	P95     Statistic = "p95"
	P99     Statistic = "p99"
)

// Measure is which value of a report counts as the use of a node. Zero is its last average.
type Measure struct {
	Statistic Statistic     // "" is the last average
	Duration  time.Duration // 0 is the longest one that the report has
}

// Aggregate is the use of a node over a time.
type Aggregate struct {
	Duration time.Duration
	Use      map[Statistic]amount.Pair
}

// PodUse is what a report has of a pod.
type PodUse struct {
	Use  amount.Pair
	Prod bool
}

// Report is what a node used, at a time. A Node keeps it; it must not change.
type Report struct {
	Updated    time.Time     // zero for a report that has not been made yet
	Interval   time.Duration // between reports
	Use        *amount.Pair  // of the node; nil where the report lacks it
	System     amount.Pair   // of neither pods nor applications
	Apps       amount.Pair   // of applications of the host
	Aggregates []Aggregate
	Pods       map[string]PodUse // by namespace/name
	// Whole is true if the report has the use of the system, of each application and of each pod that it names. Each is
	// over the time in which that ran, while Use is over a time in which pods have ended and begun.
	Whole bool
}

// running returns what the system, applications and pods used that ran when the report was made.
func (r *Report) running() amount.Pair {
	use := r.System.Plus(r.Apps)
	for _, p := range r.Pods {
		use = use.Plus(p.Use)
	}
	return use
}

// Node is the account of a node. Not safe for concurrent use.
type Node struct {
	report *Report // the last one; nil for none
	pods   map[string]entry
	view   View
}

// entry is a pod with what the view contains for it.
type entry struct {
	pod Pod
	// missing is what is added to the use of the node, prod what is added to the use of production pods.
	missing, prod amount.Pair
	// unreported is set where the report was made after the pod was assigned, and does not have it.
	unreported bool
}

// View is a node's account at a moment. Invariant: each sum is that of the entries.
type View struct {
	Report    *Report     // nil for none
	missing   amount.Pair // Σ of what the report lacks of pods
	prod      amount.Pair // Σ of production pods, by report or estimate
	estimates amount.Pair // Σ of all estimates
	// running is Report.running; zero for a report that is not Whole. unreported counts the entries that are.
	running    amount.Pair
	unreported int
}

// NewNode returns the account of a node without pods and without a report.
func NewNode() *Node { return &Node{pods: map[string]entry{}} }

// View returns the account as it is.
func (n *Node) View() View { return n.view }

// IsEmpty reports whether the account has neither pods nor a report.
func (n *Node) IsEmpty() bool { return n.report == nil && len(n.pods) == 0 }

// Pod returns a pod by its UID, false for one that is not assigned.
func (n *Node) Pod(uid string) (Pod, bool) {
	e, assigned := n.pods[uid]
	return e.pod, assigned
}

// Put assigns a pod, or replaces it by its UID.
func (n *Node) Put(p Pod) {
	n.Remove(p.UID)
	e := n.report.entry(p)
	n.pods[p.UID] = e
	n.view.add(e)
}

// Remove removes a pod, and does nothing for one that is not assigned.
func (n *Node) Remove(uid string) {
	if e, assigned := n.pods[uid]; assigned {
		n.view.remove(e)
		delete(n.pods, uid)
	}
}

// SetReport replaces the report; nil is for none.
func (n *Node) SetReport(r *Report) {
	n.report, n.view = r, View{Report: r}
	if r != nil && r.Whole {
		n.view.running = r.running()
	}
	for uid, e := range n.pods {
		e = r.entry(e.pod)
		n.pods[uid] = e
		n.view.add(e)
	}
}

// entry returns a pod with what is to be added for it: to the use of the node, and to that of its production pods. r
// may be nil.
func (r *Report) entry(p Pod) entry {
	e := entry{pod: p}
	reported, use := false, PodUse{}
	if r != nil && r.Updated.After(p.Assigned) {
		use, reported = r.Pods[p.Name]
		e.unreported = !reported
	}
	switch {
	case !reported:
		e.missing = p.Estimate
	case r.Updated.Add(-r.Interval).Before(p.Assigned) || p.Initializing || r.Updated.Before(p.Until):
		e.missing = p.Estimate.Without(use.Use)
	}
	switch {
	case !p.Prod:
	case reported && use.Prod:
		e.prod = use.Use.Plus(e.missing)
	default:
		e.prod = p.Estimate
	}
	return e
}

// add counts a pod that the report lacks.
func (v *View) add(e entry) {
	v.missing, v.prod = v.missing.Plus(e.missing), v.prod.Plus(e.prod)
	v.estimates = v.estimates.Plus(e.pod.Estimate)
	if e.unreported {
		v.unreported++
	}
}

// remove reverts add.
func (v *View) remove(e entry) {
	v.missing, v.prod = v.missing.Without(e.missing), v.prod.Without(e.prod)
	v.estimates = v.estimates.Without(e.pod.Estimate)
	if e.unreported {
		v.unreported--
	}
}

// With returns the view with one more pod, for which no report counts.
func (v View) With(p Pod) View {
	v.add((*Report)(nil).entry(p))
	return v
}

// Use returns what the node uses. Where the report lacks the measure, it is the larger of the last average and of the
// estimates of all pods.
func (v View) Use(m Measure) amount.Pair {
	if v.Report == nil || v.Report.Use == nil {
		return v.estimates
	}
	average := v.average().Plus(v.missing)
	if m.Statistic == "" {
		return average
	}
	if use, has := v.Report.aggregate(m); has {
		return use.Plus(v.missing)
	}
	if m.Duration == 0 {
		return average
	}
	return average.Larger(v.estimates)
}

// average returns what the node used of late, without pods that have ended by the time of the report. The average of a
// node contains these, and pods that have begun only in part. The report does not say how much each adds. Where it has
// all that ran at the end, their sum counts instead; not where it lacks a pod, whose own use is then known from the
// average alone.
func (v View) average() amount.Pair {
	if v.Report.Whole && v.unreported == 0 {
		return v.running
	}
	return *v.Report.Use
}

// ProdUse returns what production pods use.
func (v View) ProdUse() amount.Pair { return v.prod }

// System returns what the last report says of all but pods.
func (v View) System() amount.Pair {
	if v.Report == nil {
		return amount.Pair{}
	}
	return v.Report.System
}

// aggregate returns the measured use, false where the report lacks it.
func (r *Report) aggregate(m Measure) (use amount.Pair, has bool) {
	var longest time.Duration
	for _, a := range r.Aggregates {
		one, named := a.Use[m.Statistic]
		switch {
		case !named:
		case a.Duration == m.Duration:
			return one, true
		case m.Duration == 0 && a.Duration >= longest:
			use, has, longest = one, true, a.Duration
		}
	}
	return use, has
}

// Pods returns all pods, in no order.
func (n *Node) Pods() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		for _, e := range n.pods {
			if !yield(e.pod) {
				return
			}
		}
	}
}

// Estimates of a pod that requests nothing: 250m CPUs and 200 MiB.
var unasked = amount.Pair{amount.CPU: 250, amount.Memory: 200 << 20}

// Ask is what a pod asks for in the resources of its class: batch-cpu and batch-memory for a pod of class batch.
type Ask struct {
	Request, Limit amount.Pair // 0 for what it does not name
	// Mid is set for a pod of class mid, which is estimated to use nothing where it asks for nothing.
	Mid bool
}

// Estimate returns what a pod will use: the given percentages of the larger of its request and its limit, rounded, and
// not more than its limit; 250m CPUs and 200 MiB where it asks for nothing.
func Estimate(a Ask, factors Percents) amount.Pair {
	var estimate amount.Pair
	for r := range estimate {
		asked := max(a.Request[r], a.Limit[r])
		switch {
		case asked > 0:
			estimate[r] = min(amount.Part(asked, factors[r], 100, 50), Most)
		case !a.Mid:
			estimate[r] = unasked[r]
		}
		if a.Limit[r] > 0 {
			estimate[r] = min(estimate[r], a.Limit[r])
		}
	}
	return estimate
}

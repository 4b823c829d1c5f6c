package plugin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/descheduler"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// lowNodeLoad moves pods from nodes whose measured use is high to nodes where it is low.
type lowNodeLoad struct {
	*descheduler.LowNodeLoadArgs
	round  Round
	target target
}

func newLowNodeLoad(a *descheduler.LowNodeLoadArgs, r Round) Plugin {
	return targeted("LowNodeLoad", a.Target, func(ctx context.Context, t target, nodes []*corev1.Node) error {
		l := lowNodeLoad{a, r, t}
		r.Detector().Forget(max(a.DetectorCacheTimeout.Duration, 2*r.Interval()), r.Now())
		for _, p := range a.NodePools {
			selected := selector(p.NodeSelector)
			isOf := func(n *corev1.Node) bool { return selected.Matches(labels.Set(n.Labels)) }
			rest := slices.DeleteFunc(slices.Clone(nodes), isOf)
			l.balance(ctx, p.Name, p.LoadBand, slices.DeleteFunc(nodes, func(n *corev1.Node) bool { return !isOf(n) }))
			nodes = rest
		}
		if len(a.HighThresholds) > 0 {
			l.balance(ctx, "", a.LoadBand, nodes)
		}
		return nil
	})
}

// loadPool is a pool with the objects of its members.
type loadPool struct {
	load.Pool
	nodes   []*corev1.Node
	pods    [][]*corev1.Pod
	reports []time.Time // when the last report of each member was made
	moving  []bool      // whether a move from or to the member is under way
}

// balance moves pods between the nodes of a pool.
func (l lowNodeLoad) balance(ctx context.Context, pool string, band descheduler.LoadBand, nodes []*corev1.Node) {
	p := l.measure(band, nodes)
	c := band.AnomalyCondition
	condition := load.Condition{
		Abnormal: int(c.ConsecutiveAbnormalities), Normal: int(c.ConsecutiveNormalities), Timeout: c.Timeout.Duration,
	}
	reasons := []string{
		load.All:  "node %s uses more than highThresholds",
		load.Prod: "production pods use more of node %s than prodHighThresholds",
	}
	for kind, reason := range reasons {
		kind := load.Kind(kind)
		if p.Bands[kind] == (load.Band{}) {
			continue
		}
		low, high := p.Low(kind), []int(nil)
		key := func(i int) string { return fmt.Sprintf("%s/%d/%s", pool, kind, p.nodes[i].Name) }
		for i := range p.Members {
			isHigh := p.IsHigh(i, kind)
			lasts := l.round.Detector().Mark(key(i), condition, isHigh, p.reports[i], l.round.Now())
			if isHigh && lasts && !p.moving[i] {
				high = append(high, i)
			}
		}
		if len(low) <= int(l.NumberOfNodes) {
			continue
		}
		p.Relieve(kind, high, low, func(source, pod int, targets []int) (int, bool) {
			to, ok := l.move(ctx, p, p.pods[source][pod], targets,
				fmt.Sprintf(reason, p.nodes[source].Name))
			if ok {
				l.round.Detector().Reset(key(source))
			}
			return to, ok
		})
	}
}

// measure reads the use of nodes. A node without a report that counts is left out.
func (l lowNodeLoad) measure(band descheduler.LoadBand, nodes []*corev1.Node) *loadPool {
	p := &loadPool{Pool: load.Pool{Bands: [...]load.Band{
		load.All:  {Low: shares(band.LowThresholds), High: shares(band.HighThresholds)},
		load.Prod: {Low: shares(band.ProdLowThresholds), High: shares(band.ProdHighThresholds)},
	}}}
	for r := range amount.Resources {
		p.Weights[r] = 1
		if weight, set := band.ResourceWeights[r.String()]; set {
			p.Weights[r] = weight
		}
	}
	expiry := load.Expiry{After: time.Duration(l.NodeMetricExpirationSeconds) * time.Second}
	for _, node := range nodes {
		use, moving := l.round.Load(node.Name)
		if use.Report == nil || use.Report.Use == nil || !expiry.Scores(use.Report, l.round.Now()) {
			continue
		}
		m := load.Member{Closed: !takes(node) || moving}
		m.Use[load.All], m.Use[load.Prod] = use.Use(load.Measure{}), use.ProdUse()
		for r, n := range convert.Pair(convert.RawAllocatable(node)) {
			m.Allocatable[r] = min(n, load.Most)
		}
		p.Members = append(p.Members, m)
		p.nodes, p.moving = append(p.nodes, node), append(p.moving, moving)
		p.reports = append(p.reports, use.Report.Updated)
		p.pods = append(p.pods, l.leaving(p, use.Report))
	}
	if band.UseDeviationThresholds {
		p.Deviate()
	}
	return p
}

// leaving returns the pods of the last member that may leave it, in order: those that use most come first among pods of
// the same class and costs. A pod of which the report does not say what it uses stays.
func (l lowNodeLoad) leaving(p *loadPool, report *load.Report) (pods []*corev1.Pod) {
	i, uses := len(p.Members)-1, map[*corev1.Pod]load.PodUse{}
	for _, pod := range l.round.Pods(p.nodes[i].Name) {
		known, _ := convert.LoadSettings{}.Pod(pod, convert.AssignedAt(pod)) // without settings it does not fail
		use, reported := report.Pods[known.Name]
		if reported && report.Updated.After(known.Assigned) && !ended(pod) &&
			!ownedBy(pod, []string{"DaemonSet", "Node"}) && l.target.pod(pod) && l.round.Movable(pod) {
			use.Prod = known.Prod
			pods, uses[pod] = append(pods, pod), use
		}
	}
	cost := func(pod *corev1.Pod, key string) int {
		n, _ := strconv.Atoi(pod.Annotations[key]) // what is not a number is as if it were not there
		return n
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(byClass(a, b),
			cmp.Compare(cost(a, annotation.EvictionCost), cost(b, annotation.EvictionCost)),
			cmp.Compare(cost(a, corev1.PodDeletionCost), cost(b, corev1.PodDeletionCost)),
			cmp.Compare(p.Weighted(i, uses[b].Use), p.Weighted(i, uses[a].Use)))
	})
	for _, pod := range pods {
		p.Members[i].Pods = append(p.Members[i].Pods, uses[pod])
	}
	return pods
}

// move moves a pod to one of the targets: the one that the scheduler names, or the least used one without nodeFit. The
// place is reserved on this node alone, so that the pod does not go where it was not counted.
func (l lowNodeLoad) move(ctx context.Context, p *loadPool, pod *corev1.Pod, targets []int, reason string) (int, bool) {
	to := targets[0]
	if !l.round.Movable(pod) { // what was moved before it may have reached a limit
		return 0, false
	}
	if l.NodeFit {
		var nodes []*corev1.Node
		for _, t := range targets {
			nodes = append(nodes, p.nodes[t])
		}
		fit := slices.Index(p.nodes, l.round.Fit(ctx, pod, nodes))
		if fit < 0 {
			return 0, false
		}
		to = fit
	}
	one := &view.RoomAnswer{RoomPlan: view.RoomPlan{Moves: []view.RoomMove{{
		UID: string(pod.UID), Target: p.nodes[to].Name,
	}}}}
	return to, len(l.round.MoveAll(ctx, one, Waiting{}, reason)) == 0
}

// shares converts percentages.
func shares(given descheduler.Percentages) (out load.Shares) {
	for r := range amount.Resources {
		out[r] = int64(math.Round(given[r.String()] * 100))
	}
	return out
}

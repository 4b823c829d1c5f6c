package diag

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/sched/upstream/loop"
	"github.com/tenon-project/tenon/internal/view"
)

// scoresKept is the number of best nodes whose scores a decision remembers where the flags ask for no more.
const scoresKept = 3

// Ranked is a profile that ranks nodes: it has scores of nodes although the cycle asks the proposed one alone.
type Ranked interface {
	// Proposed returns the best scores of the ranking that proposed the last pod's node, at least most of them where
	// there are as many, and how many of the evaluated nodes are feasible; none where no ranking did.
	Proposed(most int) (scores []fwk.NodePluginScores, feasible, evaluated int)
	// Raw returns what plugins say of a node before they normalize, by name, for a pod whose nodes were scored.
	Raw(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) map[string]int64
}

// Record remembers in r each choice of a node, with the best scores, and prints what the flags ask for.
func (r *Ring) Record(flags *Flags, inner loop.Schedule) loop.Schedule {
	// weights is used by the scheduling loop alone.
	weights := map[string][]view.PluginScore{} // by profile
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (loop.Result, error) {
		keep := max(scoresKept, flags.TopScores())
		listening := &listener{Framework: f, keep: keep}
		result, err := inner(ctx, listening, state, pod)
		if err != nil {
			if flags.FilterFailures() {
				findings, _ := refusals.Attempt(f, pod.Pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
				// lines: a structured logger would quote them
				klog.Info("Pod refused\n" + FailureLines(pod.Pod.Namespace+"/"+pod.Pod.Name, findings))
			}
			return result, err
		}
		scores, feasible, evaluated := listening.best, result.FeasibleNodes, result.EvaluatedNodes
		ranked, ranks := f.(Ranked)
		if ranks && len(scores) == 0 {
			proposed, count, all := ranked.Proposed(flags.TopScores())
			if slices.ContainsFunc(proposed, func(s fwk.NodePluginScores) bool {
				return s.Name == result.SuggestedHost
			}) {
				scores, feasible, evaluated = best(proposed, keep), count, all
			}
		}
		named, known := weights[f.ProfileName()]
		if !known && len(scores) > 0 {
			named = scorersOf(f)
			weights[f.ProfileName()] = named
		}
		d := view.Decision{
			Pod: convert.ShownName(pod.Pod), UID: string(pod.Pod.UID), Profile: f.ProfileName(),
			Time: time.Now(), Node: result.SuggestedHost, Feasible: feasible, Of: evaluated,
		}
		if evaluated == 1 && len(scores) == 0 {
			d.Only = only(f, pod.Pod, result.SuggestedHost)
		}
		for _, s := range scores {
			var raw map[string]int64
			if ranks {
				raw = ranked.Raw(ctx, state, pod.Pod, s.Name)
			}
			d.Scores = append(d.Scores, scoreOf(s, named, raw))
		}
		r.Add(d)
		if n := flags.TopScores(); n > 0 {
			klog.Info("Scores\n" + view.ScoreTable(d, n)) // a table to copy: a structured logger would quote it
		}
		return result, nil
	}
}

// only returns why a node was the only one that the scheduler considered for a pod.
func only(f framework.Framework, pod *corev1.Pod, node string) string {
	if lister := f.SnapshotSharedLister(); lister != nil {
		if nodes, err := lister.NodeInfos().List(); err == nil && len(nodes) == 1 {
			return "the cluster has no other"
		}
	}
	if namedByAffinity(pod, node) {
		return "the pod's node affinity names it"
	}
	if _, ok := convert.GangPod(pod); ok {
		return "the plan of the pod's gang names it"
	}
	if pod.Status.NominatedNodeName == node {
		return "the pod's status.nominatedNodeName names it"
	}
	return ""
}

// namedByAffinity reports whether a term of the pod's required node affinity has the name of a node.
func namedByAffinity(pod *corev1.Pod, node string) bool {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(t.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && slices.Contains(r.Values, node)
		})
	})
}

// scorersOf returns the score plugins of a profile with their weights, by name.
func scorersOf(f framework.Framework) (all []view.PluginScore) {
	for _, p := range f.ListPlugins().Score.Enabled {
		all = append(all, view.PluginScore{Name: p.Name, Weight: int64(p.Weight)})
	}
	slices.SortFunc(all, func(a, b view.PluginScore) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// scoreOf describes the score of a node. Plugins that did not score it have 0.
func scoreOf(s fwk.NodePluginScores, scorers []view.PluginScore, raw map[string]int64) view.Score {
	out := view.Score{Node: s.Name, Total: s.TotalScore, Plugins: slices.Clone(scorers)}
	for _, p := range s.Scores {
		i := slices.IndexFunc(out.Plugins, func(q view.PluginScore) bool { return q.Name == p.Name })
		if i < 0 {
			continue
		}
		q := &out.Plugins[i]
		q.Score, q.Normalized = p.Score, p.Score/max(q.Weight, 1)
		if n, known := raw[p.Name]; known {
			q.Raw = &n
		}
	}
	return out
}

// listener is a profile that keeps the best scores of the cycle under way.
type listener struct {
	framework.Framework
	// keep is how many scores it keeps.
	keep int
	// best has them, the best first. nil while no node was scored.
	best []fwk.NodePluginScores
}

// RunScorePlugins scores nodes as the profile does and keeps the best scores.
func (l *listener) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := l.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if status.IsSuccess() {
		l.best = best(scores, l.keep)
	}
	return scores, status
}

// best returns the n best scores, the best first, equal ones by node. It does not change the argument.
func best(scores []fwk.NodePluginScores, n int) []fwk.NodePluginScores {
	compare := func(a, b *fwk.NodePluginScores) int {
		return cmp.Or(cmp.Compare(b.TotalScore, a.TotalScore), strings.Compare(a.Name, b.Name))
	}
	// top is sorted and has at most n scores, so that the work is one comparison for most nodes.
	top := make([]*fwk.NodePluginScores, 0, min(n, len(scores))+1)
	for i := range scores {
		s := &scores[i]
		if len(top) == n && compare(top[n-1], s) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, s, compare)
		top = slices.Insert(top, at, s)
		top = top[:min(len(top), n)]
	}
	out := make([]fwk.NodePluginScores, len(top))
	for i, s := range top {
		out[i] = *s
	}
	return out
}

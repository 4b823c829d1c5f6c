package app

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/upstream"
	"github.com/tenon-project/tenon/internal/view"
)

// scoresKept is the number of best nodes whose scores a decision remembers.
const scoresKept = 3

type schedulePod = func(context.Context, framework.Framework, fwk.CycleState,
	*framework.QueuedPodInfo) (scheduler.ScheduleResult, error)

// recordDecisions remembers each choice of a node, with the best scores.
func (s *Scheduler) recordDecisions(inner schedulePod) schedulePod {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
		keep := max(scoresKept, s.flags.TopScores())
		listening := &listener{Framework: f, keep: keep}
		result, err := inner(ctx, listening, state, pod)
		if err != nil {
			if s.flags.FilterFailures() {
				findings, _ := findingsOf(f, pod.Pod, fwk.NewStatus(fwk.Unschedulable).WithError(err))
				// lines: a structured logger would quote them
				klog.Info("Pod refused\n" + diag.FailureLines(pod.Pod.Namespace+"/"+pod.Pod.Name, findings))
			}
			return result, err
		}
		if profile, ok := f.(*upstream.Profile); ok && len(listening.best) == 0 {
			listening.best = best(profile.Proposed(), keep)
		}
		d := view.Decision{
			Pod: pod.Pod.Namespace + "/" + pod.Pod.Name, UID: string(pod.Pod.UID), Profile: f.ProfileName(),
			Time: time.Now(),
			Node: result.SuggestedHost, Feasible: result.FeasibleNodes, Of: result.EvaluatedNodes,
			Scores: listening.best,
		}
		s.decisions.Add(d)
		if n := s.flags.TopScores(); n > 0 {
			// a table to copy: a structured logger would quote it
			klog.Info("Scores\n" + diag.ScoreTable(d, n, scorers(f)...))
		}
		return result, nil
	}
}

// scorers are the score plugins of a profile.
func scorers(f framework.Framework) []string {
	var names []string
	for _, p := range f.ListPlugins().Score.Enabled {
		names = append(names, p.Name)
	}
	return names
}

// listener is a framework that overhears the scores.
type listener struct {
	framework.Framework
	keep int
	best []view.Score
}

func (l *listener) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := l.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if status.IsSuccess() {
		l.best = best(scores, l.keep)
	}
	return scores, status
}

// best copies the n highest scores, in order, in one pass.
func best(scores []fwk.NodePluginScores, n int) []view.Score {
	top := make([]int, 0, n+1)
	for i := range scores {
		if len(top) == n && scores[i].TotalScore <= scores[top[n-1]].TotalScore {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, scores[i].TotalScore, func(j int, total int64) int {
			if scores[j].TotalScore >= total {
				return -1
			}
			return 1
		})
		top = slices.Insert(top, at, i)
		top = top[:min(len(top), n)]
	}
	out := make([]view.Score, len(top))
	for i, j := range top {
		out[i] = view.Score{Node: scores[j].Name, Total: scores[j].TotalScore}
		out[i].Plugins = make([]view.PluginScore, len(scores[j].Scores))
		for k, p := range scores[j].Scores {
			out[i].Plugins[k] = view.PluginScore{Name: p.Name, Score: p.Score}
		}
	}
	return out
}

// knownView returns a node's account, nil when no object names the node.
func (s *Scheduler) knownView(node string) *ledger.View {
	if !s.store.Has(node) {
		return nil
	}
	return s.store.View(node)
}

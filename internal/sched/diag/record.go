package diag

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/sched/diag/refusals"
	"github.com/tenon-project/tenon/internal/view"
)

// scoresKept is the number of best nodes whose scores a decision remembers.
const scoresKept = 3

// SchedulePod is the step of kube-scheduler's cycle that chooses a node.
type SchedulePod = func(context.Context, framework.Framework, fwk.CycleState,
	*framework.QueuedPodInfo) (scheduler.ScheduleResult, error)

// Record remembers in r each choice of a node, with the best scores, and prints what the flags ask for.
func (r *Ring) Record(flags *Flags, inner SchedulePod) SchedulePod {
	return func(ctx context.Context, f framework.Framework, state fwk.CycleState,
		pod *framework.QueuedPodInfo,
	) (scheduler.ScheduleResult, error) {
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
		feasible, evaluated := result.FeasibleNodes, result.EvaluatedNodes
		// A profile that ranks nodes has scores without running the plugins. Its ranking has evaluated the nodes, of
		// which the cycle then asks the proposed one alone.
		ranked, ok := f.(interface {
			Proposed() (scores []fwk.NodePluginScores, feasible, evaluated int)
		})
		if ok && len(listening.best) == 0 {
			scores, count, all := ranked.Proposed()
			if len(scores) > 0 && scores[0].Name == result.SuggestedHost {
				listening.best, feasible, evaluated = best(scores, keep), count, all
			}
		}
		d := view.Decision{
			Pod: pod.Pod.Namespace + "/" + pod.Pod.Name, UID: string(pod.Pod.UID), Profile: f.ProfileName(),
			Time: time.Now(), Node: result.SuggestedHost, Feasible: feasible, Of: evaluated,
			Scores: listening.best,
		}
		r.Add(d)
		if n := flags.TopScores(); n > 0 {
			// a table to copy: a structured logger would quote it
			var scorers []string
			for _, p := range f.ListPlugins().Score.Enabled {
				scorers = append(scorers, p.Name)
			}
			klog.Info("Scores\n" + ScoreTable(d, n, scorers...))
		}
		return result, nil
	}
}

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

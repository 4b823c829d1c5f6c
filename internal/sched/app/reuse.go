package app

import (
	"bytes"
	"container/heap"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/tenon-project/tenon/internal/sched/nodenumaresource"
	"github.com/tenon-project/tenon/internal/sched/topologyspread"
)

// reuseFor is how long the scores of a pass over the nodes are good for: upstream's own bound.
const reuseFor = 500 * time.Millisecond

// scorersByUsage are the score plugins whose score of a node moves with the pods on it. They do not normalise, so that
// one node can be scored again alone: pods for which ours does have no signature.
var scorersByUsage = []string{names.NodeResourcesFit, names.NodeResourcesBalancedAllocation, nodenumaresource.Name}

// scorersByNode are the score plugins whose score of a node stays as it is while pods of one signature are placed.
var scorersByNode = []string{
	names.TaintToleration, names.NodeAffinity, names.ImageLocality, names.InterPodAffinity, names.PodTopologySpread,
	topologyspread.Name, names.VolumeBinding, names.DynamicResources,
}

// reusing is a profile that places pods of one signature, one after the other, by the scores of one pass over the nodes.
//
// Upstream's batching does so only while each pod fills its node, for it cannot score the used node again. Here the node
// that the last pod took is scored again and takes its new rank among the others. As upstream's hint, the answer is a
// proposal: the node runs through all filters, and a pod that they refuse goes the whole way.
//
// It belongs to the scheduling loop and is not safe for concurrent use.
type reusing struct {
	framework.Framework
	now    func() time.Time
	usable bool // all score plugins are known ones

	pass []fwk.NodePluginScores // what the cycle under way scored; nil when it has not

	signature fwk.PodSignature // of the pods that ranking holds for; nil for none
	since     time.Time
	left      int // pods that the ranking may still place; as many as it has nodes
	ranking   ranking
	last      fwk.NodePluginScores // the node of the last pod; not in ranking
	cycle     int64                // of the last pod
	used      bool                 // the last pod went where the ranking said
}

func newReusing(f framework.Framework, now func() time.Time) *reusing {
	return &reusing{Framework: f, now: now, usable: !slices.ContainsFunc(scorers(f), func(name string) bool {
		return !slices.Contains(scorersByUsage, name) && !slices.Contains(scorersByNode, name)
	})}
}

// RunScorePlugins scores nodes and keeps the result.
func (r *reusing) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := r.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if status.IsSuccess() {
		r.pass = scores
	}
	return scores, status
}

// GetNodeHint returns the best node for the pod, "" when all nodes have to be asked.
func (r *reusing) GetNodeHint(ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState, cycle int64) string {
	start, result := time.Now(), "no_hint"
	defer func() {
		metrics.GetNodeHintDuration.WithLabelValues(result, r.ProfileName()).Observe(metrics.SinceInSeconds(start))
	}()
	r.pass, r.used = nil, false
	if r.signature == nil {
		r.attempted(metrics.BatchAttemptNoHint)
		return ""
	}
	if reason := r.unusable(ctx, pod, signature, state, cycle); reason != "" {
		r.flush(reason)
		r.attempted(metrics.BatchAttemptNoHint)
		return ""
	}
	r.last = heap.Pop(&r.ranking).(fwk.NodePluginScores)
	result = "hint"
	return r.last.Name
}

// unusable ranks the last pod's node again and returns why the ranking cannot be used, "" when it can.
func (r *reusing) unusable(ctx context.Context, pod *corev1.Pod, signature fwk.PodSignature, state fwk.CycleState, cycle int64) string {
	switch {
	case cycle != r.cycle+1:
		return metrics.BatchFlushPodSkipped
	case !bytes.Equal(signature, r.signature):
		return metrics.BatchFlushPodIncompatible
	case r.left == 0, r.now().Sub(r.since) > reuseFor:
		return metrics.BatchFlushExpired
	}
	node, err := r.SnapshotSharedLister().NodeInfos().Get(r.last.Name)
	if err != nil || node == nil {
		return metrics.BatchFlushNodeMissing
	}
	status := r.RunFilterPlugins(ctx, state, pod, node)
	if status.IsSuccess() {
		again, ok := r.scoreAgain(ctx, state.Clone(), pod, node)
		if !ok {
			return metrics.BatchFlushNodeNotFull
		}
		heap.Push(&r.ranking, again)
	} else if !status.IsRejected() {
		return metrics.BatchFlushPodFailed
	}
	if len(r.ranking) == 0 {
		return metrics.BatchFlushEmptyList
	}
	return ""
}

// scoreAgain scores the last pod's node with that pod on it.
func (r *reusing) scoreAgain(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (fwk.NodePluginScores, bool) {
	alone := []fwk.NodeInfo{node}
	if !r.RunPreScorePlugins(ctx, state, pod, alone).IsSuccess() {
		return fwk.NodePluginScores{}, false
	}
	scored, status := r.Framework.RunScorePlugins(ctx, state, pod, alone)
	if !status.IsSuccess() || len(scored) != 1 {
		return fwk.NodePluginScores{}, false
	}
	again := r.last
	again.Scores, again.TotalScore = slices.Clone(r.last.Scores), 0
	for i := range again.Scores {
		s := &again.Scores[i]
		if slices.Contains(scorersByUsage, s.Name) {
			for _, fresh := range scored[0].Scores {
				if fresh.Name == s.Name {
					s.Score = fresh.Score
				}
			}
		}
		again.TotalScore += s.Score
	}
	return again, true
}

// StoreScheduleResults notes which node the pod got, and keeps the scores of a whole pass for the pods that follow.
func (r *reusing) StoreScheduleResults(_ context.Context, signature fwk.PodSignature, hinted, chosen string, _ framework.SortedScoredNodes, cycle int64) {
	defer metrics.StoreScheduleResultsDuration.ObserveSince(time.Now(), r.ProfileName())()
	r.cycle = cycle
	if hinted != "" && hinted == chosen {
		r.left, r.used = r.left-1, true
		r.attempted(metrics.BatchAttemptHintUsed)
		return
	}
	if hinted != "" {
		r.attempted(metrics.BatchAttemptHintNotUsed)
	}
	at := slices.IndexFunc(r.pass, func(s fwk.NodePluginScores) bool { return s.Name == chosen })
	switch {
	case signature == nil || !r.usable:
		r.flush(metrics.BatchFlushPodNotBatchable)
		return
	case at < 0 || len(r.pass) < 2:
		r.flush(metrics.BatchFlushEmptyList)
		return
	}
	r.signature, r.since, r.left = signature, r.now(), len(r.pass)
	r.last = r.pass[at]
	r.ranking = slices.Concat(ranking(r.pass[:at]), ranking(r.pass[at+1:]))
	heap.Init(&r.ranking)
	r.pass = nil
}

// proposed returns what the last pod's node was chosen by: its scores and those of the node after it. It is empty for a
// pod that went the whole way.
func (r *reusing) proposed() []fwk.NodePluginScores {
	if !r.used {
		return nil
	}
	return append([]fwk.NodePluginScores{r.last}, r.ranking[:min(1, len(r.ranking))]...)
}

// flush forgets the ranking.
func (r *reusing) flush(reason string) {
	metrics.BatchCacheFlushed.WithLabelValues(r.ProfileName(), reason).Inc()
	r.signature, r.ranking, r.last, r.pass = nil, nil, fwk.NodePluginScores{}, nil
}

func (r *reusing) attempted(result string) {
	metrics.BatchAttemptStats.WithLabelValues(r.ProfileName(), result).Inc()
}

// ranking is a heap of nodes, the best first; of equal ones upstream's dice decide.
type ranking []fwk.NodePluginScores

func (h ranking) Len() int      { return len(h) }
func (h ranking) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h ranking) Less(i, j int) bool {
	if h[i].TotalScore != h[j].TotalScore {
		return h[i].TotalScore > h[j].TotalScore
	}
	return h[i].Randomizer > h[j].Randomizer
}

func (h *ranking) Push(x any) {
	if s, ok := x.(fwk.NodePluginScores); ok {
		*h = append(*h, s)
	}
}

func (h *ranking) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = fwk.NodePluginScores{}
	*h = (*h)[:last]
	return s
}

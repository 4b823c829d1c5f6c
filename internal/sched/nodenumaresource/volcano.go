package nodenumaresource

import (
	"context"
	"math"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/place"
)

// ranksAsVolcano reports whether nodes are ranked for the pod by the formula of seed 004: the plugin's volcanoScore is
// on and the pod has Volcano's annotation with a policy.
func (p *Plugin) ranksAsVolcano(r *place.Request) bool {
	return p.args.VolcanoScore && r.Volcano != hint.None
}

// lastSpan is the score of a node whose number of NUMA nodes is unknown, or whose kubelet's model is suspect: it ranks
// last, and does not affect the score of other nodes.
const lastSpan = math.MaxInt64

// spanOn returns the number of NUMA nodes that the pod would use on a node, or lastSpan.
func (p *Plugin) spanOn(s *scoring, node string) int64 {
	view := s.View(node)
	span, ok := place.Span(view, s.Request)
	if !ok || p.Suspects(view, s.Request, node) {
		return lastSpan
	}
	return int64(span)
}

// ScoreExtensions returns p when volcanoScore is on; else every score is normalised.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions {
	if !p.args.VolcanoScore {
		return nil
	}
	return p
}

// NormalizeScore converts numbers of NUMA nodes to 100 − ⌊100·n/max⌋ with max over the candidate nodes (seed 004).
func (p *Plugin) NormalizeScore(_ context.Context, cs fwk.CycleState, _ *corev1.Pod,
	scores fwk.NodeScoreList,
) *fwk.Status {
	if s := read(cs); s == nil || !p.ranksAsVolcano(s.Request) {
		return nil
	}
	most := int64(0)
	for _, s := range scores {
		if s.Score != lastSpan {
			most = max(most, s.Score)
		}
	}
	for i := range scores {
		scores[i].Score = volcanoScore(scores[i].Score, most)
	}
	return nil
}

// volcanoScore is 100 for all nodes if none of them needs a NUMA node.
func volcanoScore(span, most int64) int64 {
	switch {
	case span == lastSpan:
		return 0
	case most == 0:
		return fwk.MaxScore
	}
	return fwk.MaxScore - fwk.MaxScore*span/most
}

package app

import (
	"hash/maphash"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/core/why"
)

// causes is a hash of the refusals of nodes, by plugin, reason and number of nodes, without numbers and names: as long
// as it is the same, so is the reported cause. Reading every node's refusal costs ten times as much. 0 means that the
// attempt failed for another reason.
type causes uint64

var causeSeed = maphash.MakeSeed()

func causesOf(f framework.Framework, status *fwk.Status) causes {
	fit := fitOf(status)
	if fit == nil || fit.Diagnosis.PreFilterMsg != "" {
		return 0
	}
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0
	}
	sum := maphash.String(causeSeed, fit.Diagnosis.PostFilterMsg)
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

// refusal is one label pair of tenon_refusals_total.
type refusal struct{ plugin, code string }

func refusalsOf(findings []why.Finding) []refusal {
	var out []refusal
	for _, o := range why.Obstacles(findings) {
		out = append(out, refusal{o.Plugin, o.Code.String()})
	}
	return out
}

// repeats reports whether an attempt failed like the one before it, for which all filters ran less than a minute ago:
// nothing would be reported, so nothing needs to be read.
func (r *reporter) repeats(pod *framework.QueuedPodInfo, c causes) bool {
	last, again := r.again(pod, c)
	if again {
		r.count(last.analysis.root.Plugin, last.refusals)
	}
	return again
}

func (r *reporter) again(pod *framework.QueuedPodInfo, c causes) (attempt, bool) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.pending[pod.Pod.UID]
	if !known || c == 0 || last.causes != c || last.analysis.at.IsZero() || now.Sub(last.read) >= repeatAfter {
		return attempt{}, false
	}
	last.attempts, last.at = pod.Attempts, now
	r.pending[pod.Pod.UID] = last
	return last, true
}

// count counts one refused attempt.
func (r *reporter) count(root string, refusals []refusal) {
	r.metrics.placement.Decided(root, "refused")
	for _, refused := range refusals {
		r.metrics.refusals.WithLabelValues(refused.plugin, refused.code).Inc()
	}
}

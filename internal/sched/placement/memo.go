package placement

import (
	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// memo counts how often a node's account remembered its answer.
type memo struct {
	hit, miss metrics.CounterMetric
}

func newMemo(register func(...metrics.Registerable)) memo {
	results := metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tenon_place_memo_total",
		Help: "Questions of Filter to a node's account, by result: hit (an equal pod has asked since the " +
			"account changed), miss.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"result"})
	register(results)
	return memo{hit: results.WithLabelValues("hit"), miss: results.WithLabelValues("miss")}
}

// fits asks a node's account, which remembers the last answers.
func (d *decision) fits(v *ledger.View, r *place.Request) why.Reason {
	reason, remembered := place.Recall(v, r)
	if remembered {
		d.metrics.memo.hit.Inc()
	} else {
		d.metrics.memo.miss.Inc()
	}
	return reason
}

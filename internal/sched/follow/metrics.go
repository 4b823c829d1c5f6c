package follow

import (
	"k8s.io/component-base/metrics"
)

// Metrics count what became of pods after they were bound, and repairs of accounts.
type Metrics struct {
	// Of pods that were bound, by what their kubelet was predicted to do and did.
	predictions, mispredictions, rejections *metrics.CounterVec
	// Of accounts that differed from the pods.
	repairs *metrics.CounterVec
	// mismatches counts all differences that were repaired, repairs those about pods with devices, by node.
	mismatches *metrics.Counter
}

// NewMetrics returns the metrics, registered by register.
func NewMetrics(register func(...metrics.Registerable)) *Metrics {
	m := &Metrics{
		predictions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_topology_predictions_total",
			Help: "Pods reserved on a node whose kubelet is predicted, by mode of the node and model (kubelet " +
				"release).",
		}, []string{"mode", "model"}),
		mispredictions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_topology_mispredict_total",
			Help: "Pods whose kubelet did something else than predicted, by mode, model and kind: rejected, mask, " +
				"cpus, memory, device.",
		}, []string{"mode", "model", "kind"}),
		rejections: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_kubelet_rejections_total",
			Help: "Pods bound by this scheduler that their kubelet rejected, by the kubelet's reason.",
		}, []string{"reason"}),
		repairs: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "tenon_device_holder_repairs_total",
			Help: "Pods with devices for which the node's account was repaired after it had differed for a minute.",
		}, []string{"node"}),
		mismatches: metrics.NewCounter(&metrics.CounterOpts{
			Name: "tenon_ledger_mismatch_total",
			Help: "Pods and quotas whose account differed from the API server's objects for a minute; each is " +
				"repaired. Always 0.",
		}),
	}
	register(m.predictions, m.mispredictions, m.rejections, m.repairs, m.mismatches)
	return m
}

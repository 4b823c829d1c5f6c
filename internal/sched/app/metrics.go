package app

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tenon-project/tenon/api/version"
)

// export makes metrics visible at /metrics. Of several schedulers in one process the first one's are.
func export(all ...metrics.Registerable) {
	for _, m := range all {
		var known prometheus.AlreadyRegisteredError
		if err := legacyregistry.Register(m); err != nil && !errors.As(err, &known) {
			panic(err) // two metrics of one name
		}
	}
}

// exportInfo exports the version, and a hash of the configuration by which replicas can be compared.
func exportInfo(c *config.KubeSchedulerConfiguration) {
	build := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "tenon_build_info", Help: "1, with the version of the binary.",
	}, []string{"component", "version"})
	inForce := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "tenon_config_info", Help: "1, with a hash of the configuration in force.",
	}, []string{"component", "hash"})
	export(build, inForce)
	build.WithLabelValues(SchedulerName, version.String()).Set(1)
	text, err := json.Marshal(c)
	if err != nil {
		return // arguments of a foreign type that cannot be marshaled; the metric is left out
	}
	sum := sha256.Sum256(text)
	inForce.WithLabelValues(SchedulerName, hex.EncodeToString(sum[:6])).Set(1)
}

package app

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenon-project/tenon/api/config/strict"
	"github.com/tenon-project/tenon/api/version"
)

// registerInfo makes metrics say which version runs with which configuration, until forget is called.
func registerInfo(to prometheus.Registerer, settings strict.Settings) (forget func(), err error) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenon_build_info", Help: "1, with the version of the binary.",
	}, []string{"component", "version"})
	inForce := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenon_config_info", Help: "1, with a hash of the configuration in force.",
	}, []string{"component", "hash"})
	build.WithLabelValues("tenon-manager", version.String()).Set(1)
	inForce.WithLabelValues("tenon-manager", settings.Hash()).Set(1)
	err = errors.Join(to.Register(build), to.Register(inForce))
	return func() { _ = to.Unregister(build) && to.Unregister(inForce) }, err
}

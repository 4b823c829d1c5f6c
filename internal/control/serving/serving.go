package serving

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tenon-project/tenon/api/version"
)

// Options are those of a server at an address: plain on loopback, elsewhere over TLS and only for those whom the API
// server lets read the path. "" or "0" serves nothing. flag names the address in an error.
func Options(flag, address string) (metricsserver.Options, error) {
	options := metricsserver.Options{BindAddress: cmp.Or(address, "0")}
	if options.BindAddress == "0" {
		return options, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return options, fmt.Errorf("%s address: %w", flag, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return options, nil
}

// RegisterInfo makes metrics say which version of a component runs with which configuration, until forget is called.
func RegisterInfo(to prometheus.Registerer, component, hash string) (forget func(), err error) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenon_build_info", Help: "1, with the version of the binary.",
	}, []string{"component", "version"})
	inForce := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tenon_config_info", Help: "1, with a hash of the configuration in force.",
	}, []string{"component", "hash"})
	for _, g := range []**prometheus.GaugeVec{&build, &inForce} {
		there := prometheus.AlreadyRegisteredError{}
		if err := to.Register(*g); errors.As(err, &there) { // by another component of this process
			*g = there.ExistingCollector.(*prometheus.GaugeVec)
		} else if err != nil {
			return nil, err
		}
	}
	build.WithLabelValues(component, version.String()).Set(1)
	inForce.WithLabelValues(component, hash).Set(1)
	own := prometheus.Labels{"component": component}
	return func() { build.DeletePartialMatch(own); inForce.DeletePartialMatch(own) }, nil
}

// Register registers metrics until forget is called; none of them where it returns an error.
func Register(to prometheus.Registerer, all ...prometheus.Collector) (forget func(), err error) {
	for i, c := range all {
		if err := to.Register(c); err != nil {
			unregister(to, all[:i])
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return func() { unregister(to, all) }, nil
}

func unregister(from prometheus.Registerer, all []prometheus.Collector) {
	for _, c := range all {
		from.Unregister(c)
	}
}

// InFolder splits the paths of a certificate and its key into their folder, which must be the same, and their names.
// who needs them is named in an error.
func InFolder(who, certFile, keyFile string) (folder, cert, key string, err error) {
	folder = filepath.Dir(certFile)
	if certFile == "" || keyFile == "" || filepath.Dir(keyFile) != folder {
		return "", "", "", errors.New(who + " a certificate file and a key file in one folder")
	}
	return folder, filepath.Base(certFile), filepath.Base(keyFile), nil
}

// UseLogger makes a logger that of the framework, which keeps one per process. A main calls it once.
func UseLogger(logger klog.Logger) { ctrl.SetLogger(logger) }

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	goruntime "runtime"
	"time"

	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	zpages "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"
	resourcemetrics "k8s.io/kubernetes/pkg/scheduler/metrics/resources"

	"github.com/tenon-project/tenon/internal/sched/diag"
)

// component is the name under which paths are listed.
const component = "tenon-scheduler"

const shutdownTimeout = 5 * time.Second

// serve starts the secure server and, when asked for, the plain one. A server that dies ends the process.
func (s *Scheduler) serve(ctx context.Context, cancel context.CancelCauseFunc) error {
	if s.config.SecureServing != nil {
		diagnostics, err := s.diagnostics(ctx, s.config.Authorization.Authorizer)
		if err != nil {
			return err
		}
		stopped, _, err := s.config.SecureServing.Serve(s.guard(s.endpoints(ctx, diagnostics)), shutdownTimeout,
			ctx.Done())
		if err != nil {
			return fmt.Errorf("start the secure server: %w", err)
		}
		go func() {
			<-stopped
			cancel(errors.New("the secure server has stopped"))
		}()
	}
	if s.options.LegacyDebugAddress != "" {
		return s.servePlain(ctx, cancel)
	}
	return nil
}

// servePlain serves diagnostics on a loopback address, without authentication and so read-only.
func (s *Scheduler) servePlain(ctx context.Context, cancel context.CancelCauseFunc) error {
	diagnostics, err := s.diagnostics(ctx, nil)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.LegacyDebugAddress)
	if err != nil {
		return fmt.Errorf("--legacy-debug-address: %w", err)
	}
	diagnostics = diag.ReadOnly(diagnostics, "this port has no authentication and is read-only, use the secure port")
	server := &http.Server{Handler: diagnostics, ReadHeaderTimeout: shutdownTimeout}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			cancel(fmt.Errorf("serve diagnostics on %s: %w", listener.Addr(), err))
		}
	}()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	klog.FromContext(ctx).Info("Serving diagnostics without authentication", "address", listener.Addr().String())
	return nil
}

// guard authenticates and authorises every request, as kube-scheduler does for its own.
func (s *Scheduler) guard(h http.Handler) http.Handler {
	info := &request.RequestInfoFactory{}
	h = genericfilters.WithAuthorization(h, s.config.Authorization.Authorizer, scheme.Codecs)
	h = genericfilters.WithAuthentication(h, s.config.Authentication.Authenticator,
		genericfilters.Unauthorized(scheme.Codecs), nil, nil)
	h = genericfilters.WithRequestInfo(h, info)
	h = genericfilters.WithCacheControl(h)
	h = filters.WithHTTPLogging(h)
	return filters.WithPanicRecovery(h, info)
}

// endpoints are kube-scheduler's paths, diagnostics, and nothing else.
func (s *Scheduler) endpoints(ctx context.Context, diagnostics http.Handler) http.Handler {
	m := mux.NewPathRecorderMux(component)
	live, ready := s.checks(ctx)
	healthz.InstallHandler(m, live...)
	healthz.InstallLivezHandler(m, live...)
	healthz.InstallReadyzHandler(m, append(live, ready...)...)
	configz.InstallHandler(m)
	m.Handle("/metrics", legacyregistry.HandlerWithReset())
	pods := resourcemetrics.Handler(s.pods())
	m.HandleFunc("/metrics/resources", func(w http.ResponseWriter, r *http.Request) {
		if s.leading.Load() {
			pods.ServeHTTP(w, r)
		}
	})
	slis.SLIMetricsWithReset{}.Install(m)
	if s.config.ComponentConfig.EnableProfiling {
		routes.Profiling{}.Install(m)
		if s.config.ComponentConfig.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	}
	m.HandlePrefix("/apis/v1/", diagnostics)
	m.Handle("/debug/flags", diagnostics)
	m.HandlePrefix("/debug/flags/", diagnostics)
	if utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentFlagz) {
		flagz.Install(m, component, flagz.NamedFlagSetsReader{FlagSets: *s.options.Flags})
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentStatusz) {
		statusz.Install(m, component, statusz.NewRegistry(compatibility.DefaultBuildEffectiveVersion(),
			statusz.WithListedPaths(m.ListedPaths())))
	}
	return m
}

// checks of health. Not being the leader fails none of them.
func (s *Scheduler) checks(ctx context.Context) (live, ready []healthz.HealthChecker) {
	live = append(live, healthz.NamedCheck("scheduling-cycle",
		func(*http.Request) error { return s.watchdog(time.Now()) }))
	if s.config.LeaderElection != nil {
		live = append(live, s.config.LeaderElection.WatchDog)
	}
	ready = append(ready, healthz.NewShutdownHealthz(ctx.Done()),
		healthz.NamedCheck("accounts", func(*http.Request) error { return s.known() }))
	return live, ready
}

// known returns why the accounts are not complete.
func (s *Scheduler) known() error {
	if !s.store.IsSynced() {
		return errors.New("nodes, topologies and pods are not all known yet")
	}
	return nil
}

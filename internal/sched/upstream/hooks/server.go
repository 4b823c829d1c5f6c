package hooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"

	corev1 "k8s.io/api/core/v1"
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
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
	zpages "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	resourcemetrics "k8s.io/kubernetes/pkg/scheduler/metrics/resources"
)

// Component is the name under which paths are listed.
const Component = "tenon-scheduler"

// Server is what the paths of kube-scheduler's server need. The handler chain of upstream's cannot be extended.
type Server struct {
	// Config has authentication, authorization and informers. Flags are shown by flagz.
	Config *config.CompletedConfig
	Flags  *cliflag.NamedFlagSets
	// Leading reports whether this process leads: others serve no metrics of pods.
	Leading func() bool
	// Live are the checks of healthz and livez; readyz has those and Ready.
	Live, Ready []healthz.HealthChecker
}

// Guard authenticates and authorises every request, as kube-scheduler does for its own.
func (s *Server) Guard(h http.Handler) http.Handler {
	info := &request.RequestInfoFactory{}
	h = genericfilters.WithAuthorization(h, s.Config.Authorization.Authorizer, scheme.Codecs)
	h = genericfilters.WithAuthentication(h, s.Config.Authentication.Authenticator,
		genericfilters.Unauthorized(scheme.Codecs), nil, nil)
	h = genericfilters.WithRequestInfo(h, info)
	h = genericfilters.WithCacheControl(h)
	h = filters.WithHTTPLogging(h)
	return filters.WithPanicRecovery(h, info)
}

// Endpoints are kube-scheduler's paths, those of diagnostics, and nothing else.
func (s *Server) Endpoints(diagnostics http.Handler) http.Handler {
	m := mux.NewPathRecorderMux(Component)
	healthz.InstallHandler(m, s.Live...)
	healthz.InstallLivezHandler(m, s.Live...)
	healthz.InstallReadyzHandler(m, append(s.Live, s.Ready...)...)
	configz.InstallHandler(m)
	m.Handle("/metrics", legacyregistry.HandlerWithReset())
	pods := resourcemetrics.Handler(s.Config.InformerFactory.Core().V1().Pods().Lister())
	m.HandleFunc("/metrics/resources", func(w http.ResponseWriter, r *http.Request) {
		if s.Leading() {
			pods.ServeHTTP(w, r)
		}
	})
	slis.SLIMetricsWithReset{}.Install(m)
	if s.Config.ComponentConfig.EnableProfiling {
		routes.Profiling{}.Install(m)
		if s.Config.ComponentConfig.EnableContentionProfiling {
			goruntime.SetBlockProfileRate(1)
		}
	}
	m.HandlePrefix("/apis/v1/", diagnostics)
	m.Handle("/debug/flags", diagnostics)
	m.HandlePrefix("/debug/flags/", diagnostics)
	if utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentFlagz) {
		flagz.Install(m, Component, flagz.NamedFlagSetsReader{FlagSets: *s.Flags})
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpages.ComponentStatusz) {
		statusz.Install(m, Component, statusz.NewRegistry(compatibility.DefaultBuildEffectiveVersion(),
			statusz.WithListedPaths(m.ListedPaths())))
	}
	return m
}

// ProfilesOn makes the profiles anew on another snapshot and other claims, with everything else as in the running ones.
func ProfilesOn(ctx context.Context, nodes fwk.SharedLister, claims fwk.SharedDRAManager, c *config.CompletedConfig,
	core *scheduler.Scheduler, outOfTree frameworkruntime.Registry,
) (map[string]framework.Framework, error) {
	registry := frameworkplugins.NewInTreeRegistry()
	if err := registry.Merge(outOfTree); err != nil {
		return nil, err
	}
	profiles := map[string]framework.Framework{}
	for i := range c.ComponentConfig.Profiles {
		profile := &c.ComponentConfig.Profiles[i]
		running := core.Profiles[profile.SchedulerName]
		f, err := frameworkruntime.NewFramework(ctx, registry, profile,
			frameworkruntime.WithComponentConfigVersion(c.ComponentConfig.APIVersion),
			frameworkruntime.WithClientSet(c.Client),
			frameworkruntime.WithKubeConfig(c.KubeConfig),
			frameworkruntime.WithInformerFactory(c.InformerFactory),
			frameworkruntime.WithSnapshotSharedLister(nodes),
			frameworkruntime.WithMutableSnapshotLister(Immutable{nodes}),
			frameworkruntime.WithSharedDRAManager(claims),
			frameworkruntime.WithSharedCSIManager(running.SharedCSIManager()),
			frameworkruntime.WithPodGroupManager(running.PodGroupManager()),
			frameworkruntime.WithPodNominator(core.SchedulingQueue),
			frameworkruntime.WithEventRecorder(running.EventRecorder()),
			frameworkruntime.WithParallelism(int(c.ComponentConfig.Parallelism)),
			frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
			frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
		)
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", profile.SchedulerName, err)
		}
		profiles[profile.SchedulerName] = f
	}
	return profiles, nil
}

// Immutable is a snapshot as preemption reads it. Only the preemption for pod groups changes one, which needs the
// feature gate GenericWorkload.
type Immutable struct{ fwk.SharedLister }

var errImmutable = errors.New("this snapshot is only read: no pod is added to it or removed from it")

// StartMutations returns an error, as the other methods do.
func (Immutable) StartMutations() error { return errImmutable }

// EndMutations returns an error.
func (Immutable) EndMutations() error { return errImmutable }

// AddPod returns an error.
func (Immutable) AddPod(fwk.PodInfo, string) error { return errImmutable }

// RemovePod returns an error.
func (Immutable) RemovePod(klog.Logger, *corev1.Pod, string) error { return errImmutable }

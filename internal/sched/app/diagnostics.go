package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/sched/diag/ginroute"
	"github.com/tenon-project/tenon/internal/sched/diag/verdict"
	"github.com/tenon-project/tenon/internal/view"
)

// rights define what a caller may read. The zero value shows everything.
type rights struct {
	pods func(r *http.Request, namespace string) bool
	node func(r *http.Request, name string) bool
}

// diagnostics returns the handler of diag over this scheduler.
func (s *Scheduler) diagnostics(ctx context.Context, may rights) (http.Handler, error) {
	live := s.evaluator(ctx)
	mounts, err := ginroute.Mounts(s.plugins.list())
	if err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	h, err := diag.New(diag.Config{
		Leading: s.leading.Load,
		Ready:   s.known,
		View:    s.knownView,
		NodeInfo: func(node string) (fwk.NodeInfo, bool) {
			l, err := live()
			if err != nil {
				return nil, false
			}
			return l.NodeInfo(node)
		},
		Pod: func(namespace, name string) *corev1.Pod {
			pod, err := s.config.InformerFactory.Core().V1().Pods().Lister().Pods(namespace).Get(name)
			if err != nil {
				return s.rejectedPod(namespace, name)
			}
			return pod
		},
		Evaluator: evaluatorFunc(func(ctx context.Context, pod *corev1.Pod) (view.Verdict, error) {
			l, err := live()
			if err != nil {
				return view.Verdict{}, err
			}
			return l.Evaluate(ctx, pod)
		}),
		Queue:     s.queued,
		LeftAlone: s.tracker.LeftAlone,
		Mispredictions: func() []diag.Misprediction {
			records := s.tracker.Mispredictions()
			out := make([]diag.Misprediction, len(records))
			for i := range records {
				out[i] = diag.Misprediction(records[i])
			}
			return out
		},
		Decisions:   s.decisions,
		Flags:       s.flags,
		Mounts:      mounts,
		MayRead:     may.pods,
		MayReadNode: may.node,
		Audit: func(r *http.Request, value string) {
			name := "unauthenticated"
			if user, ok := request.UserFrom(r.Context()); ok {
				name = user.GetName()
			}
			klog.FromContext(ctx).Info("Debug flag set", "path", r.URL.Path, "value", value, "user", name)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("diagnostics: %w", err)
	}
	return h, nil
}

// rejectedPod returns a pod that its kubelet did not run, nil when there is none of that name.
func (s *Scheduler) rejectedPod(namespace, name string) *corev1.Pod {
	obj, found, err := s.failed.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	if _, rejected := convert.Rejected(pod); !rejected {
		return nil // nothing but its name is kept
	}
	return pod
}

type evaluatorFunc func(context.Context, *corev1.Pod) (view.Verdict, error)

func (f evaluatorFunc) Evaluate(ctx context.Context, pod *corev1.Pod) (view.Verdict, error) {
	return f(ctx, pod)
}

// evaluator makes the plugins that answer questions when the first question comes: most processes are never asked.
func (s *Scheduler) evaluator(ctx context.Context) func() (*verdict.Live, error) {
	return sync.OnceValues(func() (*verdict.Live, error) {
		return verdict.NewLive(s.core.Cache, func(nodes fwk.SharedLister) (map[string]framework.Framework, error) {
			return s.profilesOn(ctx, nodes)
		})
	})
}

// profilesOn makes the profiles anew on another snapshot, with everything else as in the running ones.
func (s *Scheduler) profilesOn(ctx context.Context, nodes fwk.SharedLister) (map[string]framework.Framework, error) {
	registry := frameworkplugins.NewInTreeRegistry()
	if err := registry.Merge(s.registry); err != nil {
		return nil, err
	}
	profiles := map[string]framework.Framework{}
	for i := range s.config.ComponentConfig.Profiles {
		profile := &s.config.ComponentConfig.Profiles[i]
		running := s.core.Profiles[profile.SchedulerName]
		f, err := frameworkruntime.NewFramework(ctx, registry, profile,
			frameworkruntime.WithComponentConfigVersion(s.config.ComponentConfig.APIVersion),
			frameworkruntime.WithClientSet(s.config.Client),
			frameworkruntime.WithKubeConfig(s.config.KubeConfig),
			frameworkruntime.WithInformerFactory(s.config.InformerFactory),
			frameworkruntime.WithSnapshotSharedLister(nodes),
			frameworkruntime.WithSharedDRAManager(running.SharedDRAManager()),
			frameworkruntime.WithSharedCSIManager(running.SharedCSIManager()),
			frameworkruntime.WithPodGroupManager(running.PodGroupManager()),
			frameworkruntime.WithPodNominator(s.core.SchedulingQueue),
			frameworkruntime.WithEventRecorder(running.EventRecorder()),
			frameworkruntime.WithParallelism(int(s.config.ComponentConfig.Parallelism)),
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

// queued returns the state of a pod in the scheduling queue.
func (s *Scheduler) queued(pod *corev1.Pod) *view.Queue {
	q := &view.Queue{}
	holds := func(pods []*corev1.Pod) int {
		return slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	}
	active := s.core.SchedulingQueue.PodsInActiveQ()
	q.Length = len(active)
	switch {
	case holds(active) >= 0:
		q.Place = "active"
	case holds(s.core.SchedulingQueue.PodsInBackoffQ()) >= 0:
		q.Place = "backoff"
	case holds(s.core.SchedulingQueue.UnschedulablePods()) >= 0:
		q.Place = "unschedulable"
		if len(pod.Spec.SchedulingGates) > 0 {
			q.Place = "gated"
		}
	case holds(s.core.SchedulingQueue.InFlightPods()) >= 0:
		q.Place = "scheduling"
	}
	if last, ok := s.reporter.last(pod.UID); ok {
		q.Attempts, q.LastAttempt = last.attempts, &last.at
		if q.Place == "backoff" {
			next := last.at.Add(s.backoff(last.attempts))
			q.NextTry = &next
		}
	}
	return q
}

// backoff is how long the queue holds a pod back after so many attempts.
func (s *Scheduler) backoff(attempts int) time.Duration {
	c := &s.config.ComponentConfig
	first, most := time.Duration(c.PodInitialBackoffSeconds)*time.Second,
		time.Duration(c.PodMaxBackoffSeconds)*time.Second
	for d := first; ; d *= 2 {
		if attempts--; attempts <= 0 || d >= most {
			return min(d, most)
		}
	}
}

// mayReadPods asks the API server whether the caller may read a namespace's pods.
func (s *Scheduler) mayReadPods(r *http.Request, namespace string) bool {
	return s.may(r, authorizer.AttributesRecord{Namespace: namespace, Resource: "pods"})
}

// mayReadNode asks the API server whether the caller may read a node. The permission to get the path does not suffice:
// Kubernetes gives every user that of paths under /apis.
func (s *Scheduler) mayReadNode(r *http.Request, name string) bool {
	return s.may(r, authorizer.AttributesRecord{Name: name, Resource: "nodes"})
}

// may asks whether the caller may get an object of the core API.
func (s *Scheduler) may(r *http.Request, object authorizer.AttributesRecord) bool {
	user, ok := request.UserFrom(r.Context())
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	object.User, object.Verb, object.APIVersion, object.ResourceRequest = user, "get", "v1", true
	decision, _, err := s.config.Authorization.Authorizer.Authorize(ctx, object)
	return err == nil && decision == authorizer.DecisionAllow
}

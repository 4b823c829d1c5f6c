package loop

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tenon-project/tenon/internal/sched/upstream/podqueue"
)

// Scheduler is kube-scheduler.
type Scheduler = scheduler.Scheduler

// Result is the node that was chosen for a pod, and how many nodes were asked for it.
type Result = scheduler.ScheduleResult

// Schedule chooses a node for a pod.
type Schedule = func(context.Context, framework.Framework, fwk.CycleState, *framework.QueuedPodInfo) (Result, error)

// Fail reports why a pod has no node, and queues it again.
type Fail = scheduler.FailureHandlerFn

// Core is the parts of a scheduler that gangs and Reservations use. Each method returns what is there at the time of
// the call: layers replace the queue, the cache and the profiles after the scheduler is made.
type Core interface {
	// Profile returns the profile with a scheduler name; nil if there is none.
	Profile(name string) framework.Framework
	// Queue returns the queue with all that surrounds it.
	Queue() podqueue.Queue
	// Cached returns a pod as the cache has it, which may be assumed to be on a node; an error if it is not there.
	Cached(pod *corev1.Pod) (*corev1.Pod, error)
	// Extenders returns the extenders of the configuration.
	Extenders() []fwk.Extender
}

// Of returns the parts of a scheduler, of which podqueue has made the queue.
func Of(s *Scheduler) Core { return parts{s} }

type parts struct{ scheduler *Scheduler }

func (p parts) Profile(name string) framework.Framework { return p.scheduler.Profiles[name] }

func (p parts) Queue() podqueue.Queue { return p.scheduler.SchedulingQueue.(podqueue.Queue) }

func (p parts) Cached(pod *corev1.Pod) (*corev1.Pod, error) { return p.scheduler.Cache.GetPod(pod) }

func (p parts) Extenders() []fwk.Extender { return p.scheduler.Extenders }

type (
	// Option is a further option of kube-scheduler.
	Option = scheduler.Option
	// Recorders returns what sends the Events of a profile.
	Recorders = profile.RecorderFactory
)

// New makes a scheduler as kube-scheduler's own command does, but with further plugins. It gives each profile to
// completed, with all arguments of kube-scheduler's plugins. Nothing is read from the API server before it runs.
func New(ctx context.Context, c *config.CompletedConfig, events Recorders, plugins frameworkruntime.Registry,
	completed func(schedulerconfig.KubeSchedulerProfile), more ...Option,
) (*Scheduler, error) {
	s := &c.ComponentConfig
	return scheduler.New(ctx, c.Client, c.InformerFactory, c.DynInformerFactory, events, append([]Option{
		scheduler.WithComponentConfigVersion(s.APIVersion),
		scheduler.WithKubeConfig(c.KubeConfig),
		scheduler.WithProfiles(s.Profiles...),
		scheduler.WithPercentageOfNodesToScore(s.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins),
		scheduler.WithPodMaxBackoffSeconds(s.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(s.PodInitialBackoffSeconds),
		scheduler.WithExtenders(s.Extenders...),
		scheduler.WithParallelism(s.Parallelism),
		scheduler.WithBuildFrameworkCapturer(completed),
	}, more...)...)
}

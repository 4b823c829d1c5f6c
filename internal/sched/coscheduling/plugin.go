package coscheduling

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tenon-project/tenon/api/config/v1alpha1"
	scheduling "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Name is the plugin's name in profiles, statuses and metrics.
const Name = "Coscheduling"

// Plugin is the plugin of one profile.
type Plugin struct {
	gangs *kube.Gangs
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

// Factory makes the plugin for each profile, on one set of gangs. Unknown fields and values of its arguments are
// refused, and so are arguments that differ between profiles.
func Factory(gangs *kube.Gangs) frameworkruntime.PluginFactory {
	var once sync.Once
	return func(_ context.Context, raw runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		args, err := v1alpha1.DecodeCoscheduling(raw)
		if err != nil {
			return nil, fmt.Errorf("arguments of %s: %w", Name, err)
		}
		if err := gangs.Configure(convert.GangDefaults(&args)); err != nil {
			return nil, err
		}
		once.Do(func() { // a second instance in the process evaluates pods for explanations
			gangs.OnOpened(func(pods map[string]*corev1.Pod) { h.Activate(klog.Background(), pods) })
		})
		return &Plugin{gangs}, nil
	}
}

// Name returns Name.
func (*Plugin) Name() string { return Name }

// PreEnqueue holds back a pod whose gang may not be tried.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if r := p.gangs.Gate(pod); r.Code != why.None {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable).WithError(&refusal{r})
	}
	return nil
}

// EventsToRegister names PodGroups of both groups, so that they are read. Members are activated when their gate opens:
// the queue has no event for a change of another pending pod.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	var events []fwk.ClusterEventWithHint
	for _, group := range scheduling.Groups() {
		r := scheduling.PodGroupResource(group)
		events = append(events, fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{
				Resource:   fwk.EventResource(r.Resource + "." + r.Version + "." + r.Group),
				ActionType: fwk.Add | fwk.Update | fwk.Delete,
			},
			QueueingHintFn: p.afterChange,
		})
	}
	return events, nil
}

func (p *Plugin) afterChange(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if p.gangs.Gate(pod).Code == why.None {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

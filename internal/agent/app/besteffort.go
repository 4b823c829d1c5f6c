package app

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/event"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// followSLO follows the node's NodeSLO. One that cannot be read leaves the last one in force.
func (a *Agent) followSLO(ctx context.Context) error {
	if a.usage == nil {
		a.enforcer.Burst(slo.CPUBurstConfig{})
		return nil
	}
	if served, err := a.api.serves(slo.NodeSLOs()); err == nil && !served {
		a.followStrategies(nil)
	}
	if a.api.waitServed(ctx, slo.NodeSLOs()) != nil {
		return nil //nolint:nilerr // ctx has ended
	}
	inf := a.api.object(slo.NodeSLOs())
	forget := func(*unstructured.Unstructured) {
		a.usage.SetHosts(nil)
		a.followStrategies(nil)
	}
	var ignored []string
	err := handle(inf, func(object *unstructured.Unstructured) {
		read := &slo.NodeSLO{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, read); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read the NodeSLO, the last one counts", "node", a.o.Node)
			return
		}
		if unread := read.Spec.Unread(); !slices.Equal(unread, ignored) {
			klog.FromContext(ctx).Info("Fields of the NodeSLO have no effect", "node", a.o.Node, "fields", unread)
			ignored = unread
		}
		a.usage.SetHosts(hostsOf(read, a.enforcer.ClassGroup))
		a.followStrategies(read)
	}, forget)
	if err != nil {
		return err
	}
	watched := make(chan struct{})
	go func() { defer close(watched); inf.RunWithContext(ctx) }()
	defer func() { <-watched }()
	if cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) && len(inf.GetStore().ListKeys()) == 0 {
		a.followStrategies(nil)
	}
	return nil
}

func (a *Agent) followStrategies(object *slo.NodeSLO) {
	strategy := slo.CPUBurstStrategy{}
	if object != nil && object.Spec.CPUBurstStrategy != nil {
		strategy = *object.Spec.CPUBurstStrategy
	}
	a.enforcer.Burst(strategy.CPUBurstConfig)
	a.suppressor.Follow(object)
	a.evictor.Follow(object)
}

// Evictable returns the pods of which best-effort ones may be evicted; false while not all are known, or the agent
// leaves the node.
func (a *Agent) Evictable() (pods []*corev1.Pod, known bool) {
	if a.leaving.Load() || !a.isWired() || !a.pods.HasSynced() {
		return nil, false
	}
	for _, pod := range a.Pods() {
		pods = append(pods, pod.Pod)
	}
	return pods, true
}

// BatchMilli returns what the Node shows as batch-cpu.
func (a *Agent) BatchMilli() int64 {
	node := a.CurrentNode()
	if node == nil {
		return 0
	}
	shown := node.Status.Allocatable[convert.BatchCPU]
	return shown.Value()
}

// hostsOf returns the applications of a NodeSLO that have a cgroup of their own. Others count as the system's.
// classGroup returns the group of the pods of a class, "" for that of all pods.
func hostsOf(object *slo.NodeSLO, classGroup func(class string) string) (hosts []usage.Host) {
	for _, h := range object.Spec.HostApplications {
		if h.CgroupPath == nil {
			continue
		}
		own := strings.TrimPrefix(path.Join("/", h.CgroupPath.ParentDir, h.CgroupPath.RelativePath), "/")
		base := ""
		switch h.CgroupPath.Base {
		case slo.BaseKubepods:
			base = classGroup("")
		case slo.BaseBurstable:
			base = classGroup("burstable")
		case slo.BaseBesteffort:
			base = classGroup("besteffort")
		}
		if own != "" {
			hosts = append(hosts, usage.Host{
				Name: h.Name, Priority: h.Priority, QoS: h.QoS, Group: path.Join(base, own),
			})
		}
	}
	return hosts
}

// suppressionPace is the shortest time between two reports of what best-effort pods may use, which changes each second;
// changePace is that before a report that suppression begins or ends.
const (
	suppressionPace = 30 * time.Second
	changePace      = 5 * time.Second
)

// reportSuppression keeps the condition BestEffortSuppressed.
func (a *Agent) reportSuppression(ctx context.Context) error {
	reported := besteffort.State{}
	for {
		select {
		case <-a.suppressor.Changed():
		case <-ctx.Done():
			return nil
		}
		now := a.suppressor.State()
		if now.Suppressed == reported.Suppressed && now.CPUs == reported.CPUs && now.Quota == reported.Quota {
			continue
		}
		err := a.status.Set(ctx, event.BestEffortSuppressed, now.Suppressed, now.Reason(), now.String())
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot report what best-effort pods may use", "node", a.o.Node)
			continue
		}
		reported = now
		for waited := time.Duration(0); waited < suppressionPace; waited += changePace {
			select {
			case <-a.o.Clock.After(changePace):
			case <-ctx.Done():
				return nil
			}
			if a.suppressor.State().Suppressed != reported.Suppressed {
				break
			}
		}
	}
}

// ReservedMilli returns what the node keeps of its CPUs for others than pods.
func (a *Agent) ReservedMilli() int64 {
	if node := a.CurrentNode(); node != nil {
		return convert.Reserved(node)[amount.CPU]
	}
	return 0
}

package placement

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/upstream/config"
)

// Record returns the annotations that record what was reserved. It returns nil when nothing was reserved, and when the
// pod neither has CPUs or NUMA nodes of its own nor devices. On a node that Tenon allocates, they are the CPUs and the
// amounts by NUMA node; on a node whose kubelet allocates, they are the prediction.
func (c *Cycle) Record() map[string]string {
	if c == nil || c.reserved == "" {
		return nil
	}
	record := map[string]string{}
	if m := c.view.Machine(); m != nil {
		status := convert.Status(m, c.view, c.Request, c.Offer)
		if status.CPUSet != "" || len(status.CPUSharedPools) > 0 || len(status.NUMANodeResources) > 0 {
			record[annotation.ResourceStatusKey] = annotation.Encode(status)
		}
		if predicted, ok := convert.Predicted(c.Offer); ok {
			record[annotation.PredictedPlacementKey] = predicted.String()
		}
	}
	if devices := c.Offer.Entry.Devices; len(devices) > 0 {
		record[annotation.DeviceAllocatedKey] = convert.Allocations(devices).String()
		// Device plugins of other vendors find the GPUs of a pod by these two annotations.
		if c.adapt {
			var minors annotation.GPUMinors
			for i := range devices {
				if devices[i].Type == device.GPU && devices[i].Minor >= 0 {
					minors = append(minors, devices[i].Minor)
				}
			}
			if record[annotation.BindTimestampKey] = strconv.FormatInt(time.Now().UnixNano(), 10); len(minors) > 0 {
				record[annotation.GPUMinorsKey] = minors.String()
			}
		}
	}
	if len(record) == 0 {
		return nil
	}
	return record
}

// Bind writes node and allocation in one request. The request names the pod's UID, so that a new pod of the same name
// is never bound by it. On a node whose kubelet chooses CPUs, pods are bound in the order of their reservations, and a
// pod whose prediction is stale is predicted again before it is bound. If the API server gives no definite response,
// Bind reads the pod until it is known whether it is bound: an undo would free CPUs that the pod may have.
func (p *Plugin) Bind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	s := Read(cs)
	record := p.record(s, pod)
	if record == nil || convert.IsReservePod(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	own := s != nil && s.reserved != ""
	if own && p.tracker.Order.Wait(ctx, node, pod.UID) {
		if err := p.renew(s); err != nil {
			return fwk.AsStatus(err)
		}
		record = p.record(s, pod)
	}
	klog.FromContext(ctx).V(3).Info("Binding pod with its CPUs", "pod", klog.KObj(pod), "node", node,
		"resourceStatus", record[annotation.ResourceStatusKey], "predictedPlacement",
		record[annotation.PredictedPlacementKey], "deviceAllocated", record[annotation.DeviceAllocatedKey])
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Annotations: record},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if open, err := p.send(ctx, binding); err != nil &&
		!(open && p.isBound(ctx, pod, node, time.Now().Add(kube.LateWrite))) {
		return fwk.AsStatus(err)
	}
	p.tracker.Order.Leave(node, pod.UID)
	if own {
		p.warnIgnored(s, pod, node)
	}
	return nil
}

// record returns the annotations of Record together with those that another component adds to the pod (also).
func (d *decision) record(c *Cycle, pod *corev1.Pod) map[string]string {
	record := c.Record()
	if d.others == nil {
		return record
	}
	more := d.others.Record(pod)
	if record == nil {
		return more
	}
	maps.Copy(record, more)
	return record
}

// send writes a Binding. open reports that the API server may have it, or still get it, after the error.
// With the scheduler's API cache, the request joins the queue of that cache, and send waits for its end.
func (d *decision) send(ctx context.Context, binding *corev1.Binding) (open bool, err error) {
	cacher := d.handle.APICacher()
	if cacher == nil {
		err = d.handle.ClientSet().CoreV1().Pods(binding.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
		return isOpen(err), err
	}
	done, err := cacher.BindPod(binding)
	if err != nil {
		return false, err
	}
	err = cacher.WaitOnFinish(ctx, done)
	return isOpen(err), err
}

// isOpen reports whether an error leaves open if the request was carried out: the answer was lost, or the API server
// failed in the middle, for example because etcd did not answer in time.
// A refused connection leaves nothing open, because the request never left this machine.
func isOpen(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code >= http.StatusInternalServerError || code == http.StatusRequestTimeout
	}
	return err != nil && !utilnet.IsConnectionRefused(err)
}

// readPause separates two reads of a pod whose Binding has no definite answer.
const readPause = 500 * time.Millisecond

// isBound reads a pod until it is known whether the pod is bound to the node, and reports it. A pod without a node may
// still be bound by a request that is under way, so "not bound" is believed only from the time from on. While the API
// server does not answer, isBound does not return, and the pod keeps its reservation.
func (d *decision) isBound(ctx context.Context, pod *corev1.Pod, node string, from time.Time) (bound bool) {
	_ = wait.PollUntilContextCancel(ctx, readPause, true, func(ctx context.Context) (known bool, _ error) {
		// The time is taken before the read: a Binding that arrives after the read has had its time.
		late := !time.Now().Before(from)
		current, err := d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), nil
		}
		bound = current.UID == pod.UID && current.Spec.NodeName == node
		return current.UID != pod.UID || current.Spec.NodeName != "" || late, nil
	})
	return bound
}

// warnIgnored sends a Warning if the pod asks for cores that it shares with no other pod, and the CPUs of the node have
// no such notion.
func (d *decision) warnIgnored(s *Cycle, pod *corev1.Pod, node string) {
	if effect, _ := place.EffectOn(s.view, s.Request); effect.Ignored {
		reason := event.ExclusivePolicyIgnored
		d.handle.EventRecorder().Eventf(pod, nil, reason.Type(), reason.String(), "Binding",
			"%s: preferredCPUExclusivePolicy %s does not exist on arm64, so other pods may share cores with this one "+
				"on node %s", reason, s.Request.Exclusive, node)
	}
}

// PreBindPreFlight skips every pod that this plugin binds itself, so that nothing is written twice. For any other pod
// the first name of the decision that is asked becomes the recorder: PreBind of the other name does nothing.
func (p *Plugin) PreBindPreFlight(_ context.Context, cs fwk.CycleState, pod *corev1.Pod,
	_ string,
) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	s := Read(cs)
	if s == nil || s.recorder != "" || p.binds(pod) || s.Record() == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	s.recorder = p.name
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind records the allocation before another binder binds, which has no order. The framework asks the pre-flight
// only while it nominates nodes for expected binds, so PreBind decides again.
func (p *Plugin) PreBind(ctx context.Context, cs fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	s := Read(cs)
	if s == nil || s.recorder != "" && s.recorder != p.name || p.binds(pod) {
		return nil
	}
	if p.tracker.Order.IsStale(node, pod.UID) {
		if err := p.renew(s); err != nil {
			return fwk.AsStatus(err)
		}
	}
	record := s.Record()
	if record == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": record}})
	if err == nil {
		// recorded is set before the request: after a lost response the pod may have been bound with the record.
		s.recorder, s.recorded = p.name, true
		_, err = p.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
	}
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("record the allocation of %s: %w", klog.KObj(pod), err))
	}
	p.tracker.Order.Leave(node, pod.UID)
	return nil
}

// binds reports whether Bind of this plugin will bind the pod: no extender that is interested in the pod binds it, and
// the profile asks this plugin before all other binders.
func (d *decision) binds(pod *corev1.Pod) bool {
	for _, e := range d.handle.Extenders() {
		if e.IsBinder() && e.IsInterested(pod) {
			return false
		}
	}
	return d.bindsFirst()
}

// isFirstBinder reports whether the first binder of the profile is this decision, under any of its names. It is called
// once, after all plugins of the profile are made.
func (d *decision) isFirstBinder() bool {
	profile, ok := d.handle.(interface{ ListPlugins() *config.Plugins })
	if !ok {
		return false
	}
	binders := profile.ListPlugins().Bind.Enabled
	return len(binders) > 0 && d.names[binders[0].Name]
}

package nodescaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// Options are what a controller works with.
type Options struct {
	Nodes        cache.SharedIndexInformer // with the managed fields that convert.WithOwned keeps
	Topologies   cache.SharedIndexInformer // of v1alpha2.NodeResourceTopology
	Devices      cache.SharedIndexInformer // of devicev1alpha1.Device
	Reservations cache.SharedIndexInformer // with the index of IndexReservations
	Client       kubernetes.Interface
	// Protect keeps autoscalers from removing nodes with Reservations. false removes what an earlier controller wrote.
	Protect bool
}

// Controller writes Nodes. One at a time may run: the leader's.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string]
	// left are the annotations of nodes that were left to another writer, by node, with those that were wanted. While
	// neither changes, nothing is tried again.
	left map[string]string
}

// New returns a controller that does not run.
func New(o Options) *Controller { return &Controller{Options: o, left: map[string]string{}} }

const byNode = "availableOnNode"

// IndexReservations indexes the Reservations that hold capacity by their node.
func IndexReservations() cache.Indexers {
	return cache.Indexers{byNode: func(object any) ([]string, error) {
		if r, ok := object.(*reservation.Reservation); ok && holdsCapacity(r) {
			return []string{r.Status.NodeName}, nil
		}
		return nil, nil
	}}
}

// holdsCapacity reports whether a Reservation keeps capacity on its node.
func holdsCapacity(r *reservation.Reservation) bool {
	return r.Status.NodeName != "" && r.Status.Phase == reservation.ReservationAvailable
}

// Start works until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer c.queue.ShutDown()
	named := kube.ByName(c.queue.Add)
	reserved := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if r, ok := object.(*reservation.Reservation); ok && r.Status.NodeName != "" {
			c.queue.Add(r.Status.NodeName)
		}
	}
	holders := cache.ResourceEventHandlerFuncs{
		AddFunc: reserved, DeleteFunc: reserved,
		UpdateFunc: func(old, object any) { reserved(old); reserved(object) },
	}
	for _, f := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{{c.Nodes, named}, {c.Topologies, named}, {c.Devices, named}, {c.Reservations, holders}} {
		registration, err := f.informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("follow Nodes and what their agents report: %w", err)
		}
		defer func() { _ = f.informer.RemoveEventHandler(registration) }()
	}
	kube.Work(ctx, c.queue, "Node not kept right for autoscalers", c.follow)
	return nil
}

// follow makes a Node what its reports and Reservations say. A failure of one write does not prevent the other.
func (c *Controller) follow(ctx context.Context, name string) (time.Duration, error) {
	node := kube.Get[corev1.Node](c.Nodes, name)
	if node == nil {
		delete(c.left, name)
		return 0, nil
	}
	return 0, errors.Join(c.untaint(ctx, node), c.protect(ctx, node))
}

// untaint removes the startup taint from a Node whose agent has reported.
func (c *Controller) untaint(ctx context.Context, node *corev1.Node) error {
	at := slices.IndexFunc(node.Spec.Taints, isStartupTaint)
	if at < 0 || !isReported(node, node.Spec.Taints[at].Value, kube.Get[v1alpha2.NodeResourceTopology](c.Topologies,
		node.Name), kube.Get[devicev1alpha1.Device](c.Devices, node.Name)) {
		return nil
	}
	taints := slices.DeleteFunc(slices.Clone(node.Spec.Taints), isStartupTaint)
	// The list of taints is written as a whole: the version keeps what another writer has changed meanwhile.
	return c.patch(ctx, node, types.MergePatchType, metav1.PatchOptions{}, map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion},
		"spec":     map[string]any{"taints": taints},
	})
}

func isStartupTaint(t corev1.Taint) bool { return t.Key == annotation.StartupTaint }

// isReported reports whether the agent has reported the machine since it booted, and devices if the taint's value asks
// for them.
func isReported(node *corev1.Node, value string, t *v1alpha2.NodeResourceTopology, d *devicev1alpha1.Device) bool {
	if t == nil || value == annotation.StartupDevices && (d == nil || len(d.Spec.Devices) == 0) {
		return false
	}
	report, _, err := annotation.ParseReport(t.Annotations[annotation.ReportKey])
	return err == nil && report.Boot != "" && report.Boot == node.Status.NodeInfo.BootID
}

// protect makes a Node have the annotations that keep it while a Reservation holds capacity on it.
func (c *Controller) protect(ctx context.Context, node *corev1.Node) error {
	want := map[string]string{}
	holding, err := c.Reservations.GetIndexer().ByIndex(byNode, node.Name)
	if err != nil {
		return err
	}
	if c.Protect && len(holding) > 0 {
		want = map[string]string{annotation.ScaleDownDisabled: "true", annotation.DoNotDisrupt: "true"}
	}
	own := convert.Owned(node, convert.ScalingManager, "", "f:metadata", "f:annotations")
	state := fmt.Sprint(want, own, node.Annotations[annotation.ScaleDownDisabled],
		node.Annotations[annotation.DoNotDisrupt])
	if slices.Equal(own, slices.Sorted(maps.Keys(want))) || c.left[node.Name] == state {
		return nil
	}
	delete(c.left, node.Name)
	err = c.patch(ctx, node, types.ApplyPatchType, metav1.PatchOptions{FieldManager: convert.ScalingManager},
		map[string]any{
			"apiVersion": "v1", "kind": "Node",
			"metadata": map[string]any{"name": node.Name, "uid": node.UID, "annotations": want},
		})
	if apierrors.IsConflict(err) { // another writer has set another value
		c.left[node.Name] = state
		klog.FromContext(ctx).Info("Annotations of a Node left to another writer", "node", node.Name, "reason",
			err.Error())
		return nil
	}
	return err
}

func (c *Controller) patch(ctx context.Context, node *corev1.Node, kind types.PatchType, o metav1.PatchOptions,
	object map[string]any,
) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	if _, err = c.Client.CoreV1().Nodes().Patch(ctx, node.Name, kind, text, o); apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

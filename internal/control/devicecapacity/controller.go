package devicecapacity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// Manager is the field manager under which Nodes are written.
	Manager = convert.CapacityManager
	// lossDelay is how long less must be there before a Node shows it.
	lossDelay = time.Minute
	// status is the subresource with the amounts.
	status = "status"
)

// Options are what a controller works with.
type Options struct {
	Devices cache.SharedIndexInformer // of devicev1alpha1.Device
	Nodes   cache.SharedIndexInformer // with the managed fields that convert.WithOwned keeps
	Client  kubernetes.Interface
	Clock   clock.WithTicker // nil is the real one
}

// Controller writes Nodes. One at a time may run: the leader's.
type Controller struct {
	Options
	queue workqueue.TypedRateLimitingInterface[string]
	lost  map[string]map[corev1.ResourceName]time.Time // by node: since when less is there than the Node shows
}

// New returns a controller that does not run.
func New(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Controller{Options: o, lost: map[string]map[corev1.ResourceName]time.Time{}}
}

// Start works until ctx ends. The caches must be synced.
func (c *Controller) Start(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: c.Clock})
	defer c.queue.ShutDown()
	handler := kube.ByName(c.queue.Add)
	for _, i := range []cache.SharedIndexInformer{c.Devices, c.Nodes} {
		registration, err := i.AddEventHandler(handler)
		if err != nil {
			return fmt.Errorf("follow Devices and Nodes: %w", err)
		}
		defer func() { _ = i.RemoveEventHandler(registration) }()
	}
	kube.Work(ctx, c.queue, "Devices of a node not shown in it", c.follow)
	return nil
}

// follow makes a Node what its Device object says, and returns after what time less is to be shown; 0 for never.
func (c *Controller) follow(ctx context.Context, name string) (again time.Duration, err error) {
	node := kube.Get[corev1.Node](c.Nodes, name)
	if node == nil {
		delete(c.lost, name)
		return 0, nil
	}
	device := kube.Get[devicev1alpha1.Device](c.Devices, name) // nil for a node without devices
	if err := c.label(ctx, node, device); err != nil {
		return 0, err
	}
	amounts, again := c.amounts(node, convert.Capacity(device))
	if amounts == nil {
		return again, nil
	}
	return again, c.apply(ctx, node, map[string]any{"status": map[string]any{
		"capacity": amounts, "allocatable": amounts,
	}}, status)
}

// amounts returns what is to be written of what the devices have; nil where the Node shows it.
func (c *Controller) amounts(node *corev1.Node, have corev1.ResourceList) (write corev1.ResourceList,
	again time.Duration,
) {
	now, lost := c.Clock.Now(), map[corev1.ResourceName]time.Time{}
	shown := convert.Owned(node, Manager, status, "f:status", "f:capacity")
	write = maps.Clone(have)
	for _, name := range shown {
		r := corev1.ResourceName(name)
		current := node.Status.Capacity[r]
		if n := have[r]; n.Cmp(current) >= 0 {
			continue
		}
		since, before := c.lost[node.Name][r]
		if !before {
			since = now
		}
		if left := since.Add(lossDelay).Sub(now); left > 0 {
			write[r], lost[r] = current, since
			again = min(left, cmp.Or(again, left))
		}
	}
	if c.lost[node.Name] = lost; len(lost) == 0 {
		delete(c.lost, node.Name)
	}
	differs := len(write) != len(shown)
	for r, n := range write {
		capacity, allocatable := node.Status.Capacity[r], node.Status.Allocatable[r]
		differs = differs || !slices.Contains(shown, string(r)) || capacity.Cmp(n) != 0 || allocatable.Cmp(n) != 0
	}
	if !differs {
		return nil, again
	}
	return write, again
}

// label copies what the Device says of its GPUs.
func (c *Controller) label(ctx context.Context, node *corev1.Node, device *devicev1alpha1.Device) error {
	labels, shown := convert.DeviceLabels(device), convert.Owned(node, Manager, "", "f:metadata", "f:labels")
	differs := len(labels) != len(shown)
	for key, value := range labels {
		differs = differs || !slices.Contains(shown, key) || node.Labels[key] != value
	}
	if !differs {
		return nil
	}
	return c.apply(ctx, node, map[string]any{"metadata": map[string]any{"labels": labels}}, "")
}

// apply writes all that a Node is to have from this controller, and removes what it has from it besides.
func (c *Controller) apply(ctx context.Context, node *corev1.Node, object map[string]any, subresource string) error {
	meta, _ := object["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	meta["name"], meta["uid"] = node.Name, node.UID
	object["apiVersion"], object["kind"], object["metadata"] = "v1", "Node", meta
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: Manager, Force: new(true)}
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.ApplyPatchType, text, options,
		strings.Fields(subresource)...)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // the Node is gone, or another one has its name
		return nil
	}
	return err
}

package quotarecord

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// scanInterval is the time between two looks at all pods, writeInterval between two writes.
	scanInterval  = 10 * time.Second
	writeInterval = time.Second / 20
)

// Options are what a controller reads and writes. All fields are required.
type Options struct {
	// Pods returns all pods.
	Pods func() []*corev1.Pod
	// Record returns the annotation of a pod that counts in a quota; nil for any other one.
	Record func(*corev1.Pod) map[string]string
	Client kubernetes.Interface
}

// Controller writes. One at a time may run: the leader's.
type Controller struct{ Options }

// New returns a controller that does not run.
func New(o Options) *Controller { return &Controller{o} }

// Start writes until ctx ends. A write that fails is made again after the next scan.
func (c *Controller) Start(ctx context.Context) error {
	for {
		next := time.After(scanInterval)
		for _, pod := range c.Pods() {
			record := c.missing(pod)
			if record == nil {
				continue
			}
			if err := c.write(ctx, pod, record); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Quota of a pod not recorded", "pod", klog.KObj(pod))
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(writeInterval):
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
	}
}

// missing returns the record that a bound pod lacks; nil for one that has a record or needs none.
func (c *Controller) missing(pod *corev1.Pod) map[string]string {
	if pod.Spec.NodeName == "" || convert.Ended(pod) || pod.Annotations[annotation.QuotaBound] != "" {
		return nil
	}
	return c.Record(pod)
}

// write adds the record. The status of a pod is what the manager may write, its metadata included.
func (c *Controller) write(ctx context.Context, pod *corev1.Pod, record map[string]string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "annotations": record}, // of no namesake
	})
	if err == nil {
		_, err = c.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: "tenon-manager"}, "status")
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it has gone
		return nil
	}
	return err
}

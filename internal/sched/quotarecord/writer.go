package quotarecord

import (
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
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
	Pods corelisters.PodLister
	// Record returns the annotation of a pod that counts in a quota; nil for any other one.
	Record func(*corev1.Pod) map[string]string
	Client kubernetes.Interface
	// Leading reports whether this scheduler leads: no other one writes. Synced is closed once all pods are known.
	Leading func() bool
	Synced  <-chan struct{}
}

// Writer adds the records.
type Writer struct{ Options }

// New returns a writer that does not run.
func New(o Options) *Writer { return &Writer{o} }

// Run writes until ctx ends. A write that fails is made again after the next scan.
func (w *Writer) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.Synced:
	}
	for {
		next := time.After(scanInterval)
		pods, err := w.Pods.List(labels.Everything())
		utilruntime.Must(err) // a lister has none
		for _, pod := range pods {
			if !w.Leading() {
				break
			}
			record := w.missing(pod)
			if record == nil {
				continue
			}
			if err := w.write(ctx, pod, record); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Quota of a pod not recorded", "pod", klog.KObj(pod))
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(writeInterval):
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// missing returns the record that a bound pod lacks; nil for one that has a record or needs none.
func (w *Writer) missing(pod *corev1.Pod) map[string]string {
	if pod.Spec.NodeName == "" || convert.Ended(pod) || pod.Annotations[annotation.QuotaBound] != "" {
		return nil
	}
	return w.Record(pod)
}

// write adds the record.
func (w *Writer) write(ctx context.Context, pod *corev1.Pod, record map[string]string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "annotations": record}, // of no namesake
	})
	if err == nil {
		_, err = w.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it has gone
		return nil
	}
	return err
}

package cli

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tenon-project/tenon/api/config/sloconfig"
	"github.com/tenon-project/tenon/internal/core/colocation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
)

// addReclaim says of a batch pod that waits what the three nodes grant that come closest to fitting, and what takes the
// rest. The answer is valid without it, so errors are ignored.
func (e *explanation) addReclaim(ctx context.Context, answer *explained, pod *corev1.Pod) {
	asks := convert.BatchRequest(pod)
	if asks == (colocation.Amounts{}) || pod.Spec.NodeName != "" || convert.Ended(pod) {
		return
	}
	object, err := e.core.CoreV1().ConfigMaps(installedIn()).Get(ctx, sloconfig.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return
	}
	config, err := sloconfig.Parse(object.Data)
	if err != nil {
		return // the manager goes on with the last one that it could read
	}
	metrics, err := e.metrics(ctx)
	if err != nil {
		return
	}
	for _, candidate := range answer.Candidates[:min(3, len(answer.Candidates))] {
		node, err := e.core.CoreV1().Nodes().Get(ctx, candidate.Node, metav1.GetOptions{})
		if err != nil {
			continue
		}
		list, err := e.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String(),
		})
		if err != nil {
			continue
		}
		strategy, err := config.Strategy(node)
		if err != nil {
			continue // an Event of the Node says what is wrong
		}
		pods := make([]*corev1.Pod, len(list.Items))
		for i := range list.Items {
			pods[i] = &list.Items[i]
		}
		answer.Notes = append(answer.Notes,
			describe.Reclaim(node, metrics[node.Name], &strategy, pods, asks, time.Now())...)
	}
}

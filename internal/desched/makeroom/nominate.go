package makeroom

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/move"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

const (
	// renewal is how often nominations are renewed: a failed attempt of the scheduler ends one.
	renewal = time.Second
	// afterwards is how long a pod is nominated once the pods have moved that made room for it.
	afterwards = time.Minute
)

// Nominator keeps pods nominated to the nodes on which jobs make room for them, so that the scheduler gives what the
// pods leave to no other pod of the same priority or a lower one.
type Nominator struct {
	Jobs cache.Store
	Pods Pods
	// Client patches pods as FieldManager.
	Client       kubernetes.Interface
	FieldManager string
	Clock        clock.PassiveClock
}

// Pods are the pods of the cluster.
type Pods interface {
	// Pod returns a pod, nil where there is none.
	Pod(namespace string, uid types.UID) *corev1.Pod
}

// NeedLeaderElection is true: the leader creates the jobs.
func (*Nominator) NeedLeaderElection() bool { return true }

// Start renews nominations until ctx ends.
func (n *Nominator) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, n.Renew, renewal)
	return nil
}

// Renew nominates each pod that has no node and no nomination. A nomination to another node is the scheduler's own.
func (n *Nominator) Renew(ctx context.Context) {
	for _, object := range n.Jobs.List() {
		j := object.(*v1alpha1.PodMigrationJob)
		text := j.Annotations[annotation.MigrationRoomKey]
		if text == "" {
			continue
		}
		job := convert.MigrationJob(j)
		phase := job.Status.Phase
		if phase == move.Failed || phase.IsFinal() && n.Clock.Now().Sub(job.EndedAt()) > afterwards {
			continue
		}
		room, _, err := annotation.ParseMigrationRoom(text)
		if err != nil { // another program has written it
			klog.FromContext(ctx).V(2).Info("Ignored an annotation", "job", klog.KObj(j), "err", err)
			continue
		}
		for _, p := range room.Pods {
			pod := n.Pods.Pod(p.Namespace, types.UID(p.UID))
			if pod == nil || pod.Spec.NodeName != "" || pod.Status.NominatedNodeName != "" {
				continue
			}
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"nominatedNodeName":%q}}`, p.UID, p.Node)
			_, err := n.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: n.FieldManager}, "status")
			if err != nil {
				klog.FromContext(ctx).Error(err, "Pod not nominated", "pod", klog.KObj(pod), "node",
					klog.KRef("", p.Node))
			}
		}
	}
}

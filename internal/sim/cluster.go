package sim

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// fromCluster are the kinds that --cluster reads, beside PodGroups. Pods are not made of their workloads, which are
// read for the limits of migrations.
var fromCluster = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.SchemeGroupVersion.WithResource("nodes"),
	corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("services"),
	corev1.SchemeGroupVersion.WithResource("limitranges"), corev1.SchemeGroupVersion.WithResource("resourcequotas"),
	schedulingv1.SchemeGroupVersion.WithResource("priorityclasses"),
	nodev1.SchemeGroupVersion.WithResource("runtimeclasses"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"),
	corev1.SchemeGroupVersion.WithResource("persistentvolumes"),
	storagev1.SchemeGroupVersion.WithResource("storageclasses"), storagev1.SchemeGroupVersion.WithResource("csinodes"),
	storagev1.SchemeGroupVersion.WithResource("csidrivers"),
	storagev1.SchemeGroupVersion.WithResource("csistoragecapacities"),
	storagev1.SchemeGroupVersion.WithResource("volumeattachments"),
	resourcev1.SchemeGroupVersion.WithResource("resourceclaims"),
	resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates"),
	resourcev1.SchemeGroupVersion.WithResource("resourceslices"),
	resourcev1.SchemeGroupVersion.WithResource("deviceclasses"),
	policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), v1alpha2.Resource(), nodeinfo.Resource(),
	devicev1alpha1.Resource(), devicev1alpha1.NetworkResource(), reservation.Resource(),
	migration.Resource(), appsv1.SchemeGroupVersion.WithResource("deployments"),
	appsv1.SchemeGroupVersion.WithResource("replicasets"), appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	quotav1alpha1.Resource(quotav1alpha1.GroupName), quotav1alpha1.Resource(quotav1alpha1.CommunityGroupName),
	colocation.Resource(),
}

// clusterName is the file name in the origin of objects that --cluster reads.
const clusterName = "cluster"

// clusterDocuments reads the objects of a cluster, one document for each kind. It skips kinds that the server does not
// serve. Jobs are only for what they declare about their pods.
func clusterDocuments(ctx context.Context, config *rest.Config, withJobs bool) ([]document, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	resources := slices.Clone(fromCluster)
	if withJobs {
		resources = append(resources, batchv1.SchemeGroupVersion.WithResource("jobs"))
	}
	for _, kind := range quotav1alpha1.GangKinds() {
		resources = append(resources, kind.At...)
	}
	var docs []document
	served := map[schema.GroupResource]bool{} // in a version before
	for i, resource := range resources {
		if served[resource.GroupResource()] {
			continue
		}
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		served[resource.GroupResource()] = true
		text, err := list.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", resource.Resource, err)
		}
		docs = append(docs, document{origin{file: clusterName, document: i + 1}, text})
	}
	return docs, nil
}

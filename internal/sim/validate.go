package sim

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/resource"
	resourcevalidation "k8s.io/kubernetes/pkg/apis/resource/validation"
	"k8s.io/kubernetes/pkg/registry/apps/daemonset"
	deploymentregistry "k8s.io/kubernetes/pkg/registry/apps/deployment"
	"k8s.io/kubernetes/pkg/registry/apps/replicaset"
	"k8s.io/kubernetes/pkg/registry/apps/statefulset"
	"k8s.io/kubernetes/pkg/registry/batch/cronjob"
	"k8s.io/kubernetes/pkg/registry/batch/job"
	"k8s.io/kubernetes/pkg/registry/core/limitrange"
	"k8s.io/kubernetes/pkg/registry/core/namespace"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolume"
	"k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim"
	podregistry "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/registry/core/replicationcontroller"
	quotaregistry "k8s.io/kubernetes/pkg/registry/core/resourcequota"
	"k8s.io/kubernetes/pkg/registry/core/service"
	"k8s.io/kubernetes/pkg/registry/node/runtimeclass"
	"k8s.io/kubernetes/pkg/registry/policy/poddisruptionbudget"
	"k8s.io/kubernetes/pkg/registry/resource/deviceclass"
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
	"k8s.io/kubernetes/pkg/registry/scheduling/priorityclass"
	"k8s.io/kubernetes/pkg/registry/storage/csidriver"
	"k8s.io/kubernetes/pkg/registry/storage/csinode"
	"k8s.io/kubernetes/pkg/registry/storage/csistoragecapacity"
	"k8s.io/kubernetes/pkg/registry/storage/storageclass"
	"k8s.io/kubernetes/pkg/registry/storage/volumeattachment"

	profiles "github.com/tenon-project/tenon/api/quota/v1alpha1"
)

// strategyOf returns what the API server does with an object of Kubernetes' kinds that is created; nil where it is not
// asked.
func strategyOf(o runtime.Object) rest.RESTCreateStrategy {
	switch o.(type) {
	case *corev1.Pod:
		return podregistry.Strategy
	case *corev1.Node:
		return node.Strategy
	case *corev1.Service:
		return service.Strategy
	case *corev1.Namespace:
		return namespace.Strategy
	case *corev1.LimitRange:
		return limitrange.Strategy
	case *corev1.ResourceQuota:
		return quotaregistry.Strategy
	case *corev1.ReplicationController:
		return replicationcontroller.Strategy
	case *corev1.PersistentVolume:
		return persistentvolume.Strategy
	case *corev1.PersistentVolumeClaim:
		return persistentvolumeclaim.Strategy
	case *appsv1.Deployment:
		return deploymentregistry.Strategy
	case *appsv1.ReplicaSet:
		return replicaset.Strategy
	case *appsv1.StatefulSet:
		return statefulset.Strategy
	case *appsv1.DaemonSet:
		return daemonset.Strategy
	case *batchv1.Job:
		return job.Strategy
	case *batchv1.CronJob:
		return cronjob.Strategy
	case *schedulingv1.PriorityClass:
		return priorityclass.Strategy
	case *policyv1.PodDisruptionBudget:
		return poddisruptionbudget.Strategy
	case *nodev1.RuntimeClass:
		return runtimeclass.Strategy
	case *storagev1.StorageClass:
		return storageclass.Strategy
	case *storagev1.CSINode:
		return csinode.Strategy
	case *storagev1.CSIDriver:
		return csidriver.Strategy
	case *storagev1.CSIStorageCapacity:
		return csistoragecapacity.Strategy
	case *storagev1.VolumeAttachment:
		return volumeattachment.Strategy
	case *resourcev1.ResourceSlice:
		return resourceslice.Strategy
	case *resourcev1.DeviceClass:
		return deviceclass.Strategy
	}
	return nil
}

// create completes an object as the API server does when it is created, and validates it. What the object says of its
// status remains, for the input describes a cluster. A pod with a node only needs valid names.
func create(o runtime.Object) field.ErrorList {
	if errs := named(o); len(errs) > 0 {
		return errs
	}
	switch t := o.(type) {
	case *profiles.ElasticQuotaProfile:
		if t.Spec.QuotaName == "" {
			return field.ErrorList{field.Required(field.NewPath("spec", "quotaName"), "")}
		}
		return nil
	case *corev1.Pod:
		if t.Spec.NodeName != "" {
			return nil
		}
		status, group := t.Status, t.Spec.SchedulingGroup
		defer func() { t.Status, t.Spec.SchedulingGroup = status, group }() // a feature gate drops the group
	case *batchv1.Job: // the selector and labels of its pods have its uid
		t.UID = ownedBy(t, "Job").uid()
		status := t.Status
		defer func() { t.Status = status }()
	case *resourcev1.ResourceClaim:
		return resourcevalidation.ValidateResourceClaim(internalOf(t).(*resource.ResourceClaim))
	case *resourcev1.ResourceClaimTemplate:
		return resourcevalidation.ValidateResourceClaimTemplate(internalOf(t).(*resource.ResourceClaimTemplate))
	}
	strategy := strategyOf(o)
	if strategy == nil {
		return nil
	}
	internal, meta := internalOf(o), o.(metav1.Object)
	kinds, _, err := scheme().ObjectKinds(o)
	utilruntime.Must(err)
	ctx := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(context.Background(), meta.GetNamespace()),
		&genericapirequest.RequestInfo{APIGroup: kinds[0].Group, APIVersion: kinds[0].Version})
	strategy.PrepareForCreate(ctx, internal)
	if s, ok := internal.(*core.Service); ok {
		allocate(s)
	}
	errs := strategy.Validate(ctx, internal)
	if len(errs) == 0 {
		errs = validation.ValidateObjectMetaAccessor(internal.(metav1.Object), strategy.NamespaceScoped(),
			validateName, field.NewPath("metadata"))
	}
	switch o.(type) {
	case *corev1.Pod, *batchv1.Job:
		utilruntime.Must(scheme().Convert(internal, o, nil)) // it was converted from this kind
	}
	return errs
}

// completeTemplate completes a pod template as the API server completes the pods that are made of it.
func completeTemplate(template *corev1.PodTemplateSpec) {
	internal := internalOf(&corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec})
	group := template.Spec.SchedulingGroup
	podregistry.Strategy.PrepareForCreate(context.Background(), internal)
	var out corev1.Pod
	utilruntime.Must(scheme().Convert(internal, &out, nil))
	template.ObjectMeta, template.Spec = out.ObjectMeta, out.Spec
	template.Spec.SchedulingGroup = group
}

// allocate gives a Service what the API server allocates, where validation demands it.
func allocate(s *core.Service) {
	if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
	if s.Spec.Type == core.ServiceTypeLoadBalancer && s.Spec.HealthCheckNodePort == 0 &&
		s.Spec.ExternalTrafficPolicy == core.ServiceExternalTrafficPolicyLocal {
		s.Spec.HealthCheckNodePort = 30000 // no node uses it
	}
}

func internalOf(o runtime.Object) runtime.Object {
	out, err := scheme().ConvertToVersion(o.DeepCopyObject(), runtime.InternalGroupVersioner)
	utilruntime.Must(err) // it was decoded, and defaults were set
	return out
}

func named(o runtime.Object) field.ErrorList {
	if o.(metav1.Object).GetName() == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata", "name"), "name or generateName is required")}
	}
	return nil
}

// validateName returns what an API server does not take in the name of any object, or in its beginning.
func validateName(name string, isPrefix bool) []string {
	if isPrefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

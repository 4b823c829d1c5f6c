package sim

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/apps"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchvalidation "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	schedulingvalidation "k8s.io/kubernetes/pkg/apis/scheduling/validation"

	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	profiles "github.com/tenon-project/tenon/api/quota/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// validate applies the API server's validation. A pod with a node only needs a valid name and node.
func validate(o runtime.Object) field.ErrorList {
	switch t := o.(type) {
	case *v1alpha2.NodeResourceTopology, *nodeinfo.Numatopology, *devicev1alpha1.Device,
		*quotav1alpha1.ElasticQuota, *quotav1alpha1.PodGroup, *devicev1alpha1.ClusterNetworkTopology,
		*reservation.Reservation, *migration.PodMigrationJob, *nodeMetric,
		*colocation.ClusterColocationProfile:
		return named(t)
	case *profiles.ElasticQuotaProfile:
		if t.Spec.QuotaName == "" {
			return append(named(t), field.Required(field.NewPath("spec", "quotaName"), ""))
		}
		return named(t)
	case *corev1.Pod:
		if t.Spec.NodeName != "" {
			return named(t)
		}
	}
	internal, err := scheme().ConvertToVersion(o, runtime.InternalGroupVersioner)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	options := func(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
		return podutil.GetValidationOptionsFromPodTemplate(t, nil)
	}
	switch t := internal.(type) {
	case *core.Pod:
		return corevalidation.ValidatePodCreate(t,
			podutil.GetValidationOptionsFromPodSpecAndMeta(&t.Spec, nil, &t.ObjectMeta, nil))
	case *core.Node:
		return corevalidation.ValidateNode(t)
	case *core.Service:
		return corevalidation.ValidateServiceCreate(t)
	case *core.Namespace:
		return corevalidation.ValidateNamespace(t)
	case *scheduling.PriorityClass:
		return schedulingvalidation.ValidatePriorityClass(t)
	case *policy.PodDisruptionBudget:
		return append(named(o), policyvalidation.ValidatePodDisruptionBudget(t,
			policyvalidation.PodDisruptionBudgetValidationOptions{})...)
	case *apps.Deployment:
		return appsvalidation.ValidateDeployment(t, options(&t.Spec.Template))
	case *apps.ReplicaSet:
		return appsvalidation.ValidateReplicaSet(t, options(&t.Spec.Template))
	case *apps.StatefulSet:
		return appsvalidation.ValidateStatefulSet(t, options(&t.Spec.Template))
	case *apps.DaemonSet:
		return appsvalidation.ValidateDaemonSet(t, options(&t.Spec.Template))
	case *batch.CronJob:
		return batchvalidation.ValidateCronJobCreate(t, options(&t.Spec.JobTemplate.Spec.Template))
	case *batch.Job: // without the selector and the labels that the API server makes at creation
		path := field.NewPath("spec", "template")
		errs := append(named(o), corevalidation.ValidatePodTemplateSpec(&t.Spec.Template, path,
			options(&t.Spec.Template))...)
		if given := t.Spec.Template.Spec.RestartPolicy; given == core.RestartPolicyAlways {
			errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), given,
				[]core.RestartPolicy{core.RestartPolicyOnFailure, core.RestartPolicyNever}))
		}
		return errs
	}
	return nil
}

func named(o runtime.Object) field.ErrorList {
	if o.(metav1.Object).GetName() == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")}
	}
	return nil
}

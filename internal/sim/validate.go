package sim

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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

	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
)

// validate asks the API server's own rules. A pod with a node is loaded as it is: only its name and node must be there.
func validate(o runtime.Object) field.ErrorList {
	switch t := o.(type) {
	case *corev1.Pod:
		if t.Spec.NodeName != "" {
			return named(t.Name)
		}
		return check(t, &core.Pod{}, func(p *core.Pod) field.ErrorList {
			return corevalidation.ValidatePodCreate(p,
				podutil.GetValidationOptionsFromPodSpecAndMeta(&p.Spec, nil, &p.ObjectMeta, nil))
		})
	case *corev1.Node:
		return check(t, &core.Node{}, corevalidation.ValidateNode)
	case *corev1.Service:
		return check(t, &core.Service{}, corevalidation.ValidateServiceCreate)
	case *corev1.Namespace:
		return check(t, &core.Namespace{}, corevalidation.ValidateNamespace)
	case *schedulingv1.PriorityClass:
		return check(t, &scheduling.PriorityClass{}, schedulingvalidation.ValidatePriorityClass)
	case *policyv1.PodDisruptionBudget:
		return check(t, &policy.PodDisruptionBudget{}, func(b *policy.PodDisruptionBudget) field.ErrorList {
			return append(named(b.Name), policyvalidation.ValidatePodDisruptionBudget(b,
				policyvalidation.PodDisruptionBudgetValidationOptions{})...)
		})
	case *v1alpha2.NodeResourceTopology, *nodeinfo.Numatopology:
		return named(t.(metav1.Object).GetName())
	}
	return validateWorkload(o)
}

func validateWorkload(o runtime.Object) field.ErrorList {
	options := func(t *core.PodTemplateSpec) corevalidation.PodValidationOptions {
		return podutil.GetValidationOptionsFromPodTemplate(t, nil)
	}
	switch t := o.(type) {
	case *appsv1.Deployment:
		return check(t, &apps.Deployment{}, func(w *apps.Deployment) field.ErrorList {
			return appsvalidation.ValidateDeployment(w, options(&w.Spec.Template))
		})
	case *appsv1.ReplicaSet:
		return check(t, &apps.ReplicaSet{}, func(w *apps.ReplicaSet) field.ErrorList {
			return appsvalidation.ValidateReplicaSet(w, options(&w.Spec.Template))
		})
	case *appsv1.StatefulSet:
		return check(t, &apps.StatefulSet{}, func(w *apps.StatefulSet) field.ErrorList {
			return appsvalidation.ValidateStatefulSet(w, options(&w.Spec.Template))
		})
	case *appsv1.DaemonSet:
		return check(t, &apps.DaemonSet{}, func(w *apps.DaemonSet) field.ErrorList {
			return appsvalidation.ValidateDaemonSet(w, options(&w.Spec.Template))
		})
	case *batchv1.Job:
		return jobTemplate(&t.Spec, t.Name, field.NewPath("spec", "template"))
	case *batchv1.CronJob:
		return check(t, &batch.CronJob{}, func(w *batch.CronJob) field.ErrorList {
			return batchvalidation.ValidateCronJobCreate(w, options(&w.Spec.JobTemplate.Spec.Template))
		})
	}
	return nil
}

// jobTemplate checks a Job without the selector and the labels that the API server makes at creation.
func jobTemplate(s *batchv1.JobSpec, name string, path *field.Path) field.ErrorList {
	errs := named(name)
	template := &core.PodTemplateSpec{}
	if err := scheme().Convert(&s.Template, template, nil); err != nil {
		return append(errs, field.InternalError(path, err))
	}
	opts := podutil.GetValidationOptionsFromPodTemplate(template, nil)
	errs = append(errs, corevalidation.ValidatePodTemplateSpec(template, path, opts)...)
	if s.Template.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(path.Child("spec", "restartPolicy"), s.Template.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	}
	return errs
}

func named(name string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(field.NewPath("metadata", "name"), "")}
	}
	return nil
}

// check converts to the API server's internal type and validates that.
func check[T runtime.Object](versioned runtime.Object, internal T, validate func(T) field.ErrorList) field.ErrorList {
	if err := scheme().Convert(versioned, internal, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return validate(internal)
}

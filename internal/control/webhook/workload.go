package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// workload is what an object that creates pods says of them: in jobTemplate for a CronJob, else in template. Only a pod
// itself has containers.
type workload struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Containers  []json.RawMessage
		Template    corev1.PodTemplateSpec
		JobTemplate *struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
	}
}

// warnWorkload answers about a workload with what will be said of its pods, as warnings: the answers about the pods
// themselves go to the controller that creates them, and its writer does not see those.
func (h handlers) warnWorkload(_ context.Context, req ctrl.Request) ctrl.Response {
	pod, field, err := readTemplate(req)
	if err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	convert.CompleteRequests(&pod.Spec)
	var warnings []string
	add := func(text, end string) {
		if strings.HasPrefix(text, "metadata.") || strings.HasPrefix(text, "spec.") {
			text = field + text
		}
		warnings = append(warnings, text+end)
	}
	a := h.created(req, pod)
	for _, r := range a.Refusals {
		add(r.String(), "; its pods will be refused")
	}
	for _, text := range a.Warnings {
		add(text, "")
	}
	warnings = append(slices.Compact(warnings), runTimeOf(req).Warnings...)
	return ctrl.Allowed("").WithWarnings(warnings...)
}

// runTimeOf returns what is to be said of the run time that a Job declares, or those of a CronJob.
func runTimeOf(req ctrl.Request) admission.Answer {
	var job batchv1.Job
	var cron batchv1.CronJob
	switch req.Kind.Kind { // readTemplate has read the object
	case "Job":
		_ = json.Unmarshal(req.Object.Raw, &job)
		return admission.JobRunTime(job.Annotations, "")
	case "CronJob":
		_ = json.Unmarshal(req.Object.Raw, &cron)
		return admission.JobRunTime(cron.Spec.JobTemplate.Annotations, "spec.jobTemplate.")
	}
	return admission.Answer{}
}

// warnScheduler answers about a pod, or a workload, whose scheduler is not one of Tenon's.
func (h handlers) warnScheduler(_ context.Context, req ctrl.Request) ctrl.Response {
	pod, field, err := readTemplate(req)
	if err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	if h.rules.Profiles != nil {
		_, namespace, err := h.rules.Profiles(req.Namespace)
		if err == nil && namespace[annotation.DeviceSchedulingLabel] == "enabled" {
			pod, _ = admission.Schedule(pod, h.rules.Kinds(), h.rules.SchedulerName)
		}
	}
	if pod.Spec.SchedulerName == h.rules.SchedulerName {
		return ctrl.Allowed("") // its namespace gives it one
	}
	return respond(req, admission.Unserved(pod, field, h.rules.SchedulerName))
}

// readTemplate returns the pod that a request creates, and the path of its fields: that of a workload's template.
func readTemplate(req ctrl.Request) (pod *corev1.Pod, field string, err error) {
	var w workload
	if err := json.Unmarshal(req.Object.Raw, &w); err != nil {
		return nil, "", err
	}
	field, template := "spec.template.", w.Spec.Template
	switch j := w.Spec.JobTemplate; {
	case j != nil:
		field, template = "spec.jobTemplate.spec.template.", j.Spec.Template
	case len(w.Spec.Containers) > 0:
		field, template = "", corev1.PodTemplateSpec{}
		if err := json.Unmarshal(req.Object.Raw, &template); err != nil {
			return nil, "", err
		}
	}
	pod = &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = req.Namespace
	if queue := w.Metadata.Labels[convert.KueueQueue]; queue != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, convert.KueueQueue, queue)
	}
	return pod, field, nil
}

// created returns all that the webhooks say of a pod that is created, by every profile that may apply to it.
func (h handlers) created(req ctrl.Request, pod *corev1.Pod) (a admission.Answer) {
	req.Operation = admissionv1.Create
	if h.rules.Profiles != nil {
		if profiles, namespace, err := h.rules.Profiles(req.Namespace); err == nil {
			pod, a = admission.Colocate(pod, namespace, profiles, func(string) int { return 0 })
		}
	}
	changed, more, _ := h.mutatePod(req, pod)
	a.Refusals, a.Warnings = append(a.Refusals, more.Refusals...), append(a.Warnings, more.Warnings...)
	if !a.Allowed() {
		return a
	}
	if q := h.rules.Quotas; q != nil && !q.HasSynced() {
		h.rules.Quotas = nil // before they have synced, they refuse every pod
	}
	more = h.validatePod(req, changed, nil)
	a.Refusals, a.Warnings = more.Refusals, append(a.Warnings, more.Warnings...)
	return a
}

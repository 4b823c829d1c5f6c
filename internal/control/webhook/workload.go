package webhook

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// workload is what an object that creates pods says of them: in jobTemplate for a CronJob, else in template.
type workload struct {
	Spec struct {
		Template    corev1.PodTemplateSpec
		JobTemplate *struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
	}
}

// warnWorkload answers about a workload with what will be said of its pods, as warnings: the answers about the pods
// themselves go to the controller that creates them, and its writer does not see those.
func (h handlers) warnWorkload(_ context.Context, req ctrl.Request) ctrl.Response {
	var w workload
	if err := json.Unmarshal(req.Object.Raw, &w); err != nil {
		return ctrl.Errored(http.StatusBadRequest, err)
	}
	field, template := "spec.template.", w.Spec.Template
	if j := w.Spec.JobTemplate; j != nil {
		field, template = "spec.jobTemplate.spec.template.", j.Spec.Template
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = req.Namespace
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
	return ctrl.Allowed("").WithWarnings(slices.Compact(warnings)...)
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

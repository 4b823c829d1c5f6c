package sim

import (
	"io"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/core/device"
)

// webhooks are the manager's webhooks for pods that are created, as its manifests register them. Their match conditions
// are not read: but for the one that leaves pods of other schedulers alone, they only save calls about pods to which no
// rule applies.
type webhooks struct {
	namespaces map[string]labels.Selector // by the path at which the manager answers
	world      *world
}

func readWebhooks(w *world) webhooks {
	out := webhooks{map[string]labels.Selector{}, w}
	for _, text := range deploy.Webhooks() {
		// A validating configuration has all the fields of a mutating one that are read here.
		var c admissionv1.MutatingWebhookConfiguration
		utilruntime.Must(yaml.Unmarshal(text, &c))
		for _, w := range c.Webhooks {
			selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
			utilruntime.Must(err)
			if service := w.ClientConfig.Service; createsPods(w.Rules) && service != nil {
				out.namespaces[*service.Path] = selector
			}
		}
	}
	return out
}

func createsPods(rules []admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return slices.Contains(r.Resources, "pods") && slices.Contains(r.Operations, admissionv1.Create)
	})
}

func (w webhooks) admit(entry *pod, namespace *corev1.Namespace, kinds device.Kinds, warn io.Writer) (
	refused []Reason,
) {
	p := entry.Pod
	if len(entry.refused) > 0 {
		return entry.refused
	}
	if !slices.Contains(schedulerNames, p.Spec.SchedulerName) {
		return nil
	}
	var warnings []string
	asks := func(path string) bool { return w.namespaces[path].Matches(labels.Set(namespace.Labels)) }
	for path, mutate := range map[string]func(*corev1.Pod) (*corev1.Pod, admission.Answer){
		"/mutate-pod": admission.Mutate,
		"/mutate-pod-scheduler": func(p *corev1.Pod) (*corev1.Pod, admission.Answer) {
			return admission.Schedule(p, kinds, schedulerNames[0])
		},
		"/mutate-pod-runtime": func(p *corev1.Pod) (*corev1.Pod, admission.Answer) {
			return admission.DeclareRunTime(p, w.world.jobOf(p))
		},
	} {
		if asks(path) {
			changed, answer := mutate(p)
			*p, warnings = *changed, append(warnings, answer.Warnings...)
		}
	}
	slices.Sort(warnings)
	if asks("/validate-pod") {
		answer := admission.Create(p, kinds)
		ofQuota := admission.PodQuota(p, nil, w.world.rules)
		warnings = append(append(warnings, answer.Warnings...), ofQuota.Warnings...)
		for _, r := range append(answer.Refusals, ofQuota.Refusals...) {
			refused = append(refused, Reason{Code: r.Code, Message: r.String()})
		}
	}
	for _, text := range warnings {
		key, _, _ := strings.Cut(strings.TrimPrefix(text, "metadata.labels["), "]")
		if _, ofOperator := entry.operator[key]; ofOperator {
			continue // no user wrote it
		}
		warnf(warn, "warning: Pod %s/%s: %s", p.Namespace, p.Name, text)
	}
	return refused
}

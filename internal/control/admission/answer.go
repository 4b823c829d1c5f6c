package admission

import (
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Refusal is one rule that an object breaks.
type Refusal struct {
	Code  why.Code
	Field string
	// Text names the rule and, where there is a choice, the allowed values.
	Text string
}

// String returns the field and the text.
func (r Refusal) String() string { return r.Field + ": " + r.Text }

// Answer is what a webhook says. An object without refusals is admitted.
type Answer struct {
	Refusals []Refusal
	Warnings []string
}

// Allowed reports whether the object is admitted.
func (a *Answer) Allowed() bool { return len(a.Refusals) == 0 }

func (a *Answer) refuse(code why.Code, field, format string, args ...any) {
	a.Refusals = append(a.Refusals, Refusal{Code: code, Field: field, Text: fmt.Sprintf(format, args...)})
}

func (a *Answer) warn(field, format string, args ...any) {
	a.Warnings = append(a.Warnings, field+": "+fmt.Sprintf(format, args...))
}

func (a *Answer) values(field string, warnings []annotation.Warning) {
	for _, w := range warnings {
		if w.Field == "" {
			a.warn(field, "%s", w.Text)
		} else {
			a.warn(field, "%s", w)
		}
	}
}

// parsed reads an annotation, with its warnings. ok is false where it is absent, or where it cannot be read, which is
// refused.
func parsed[T any](a *Answer, annotations map[string]string, key string,
	parse func(string) (T, []annotation.Warning, error),
) (value T, ok bool) {
	text, ok := annotations[key]
	if !ok {
		return value, false
	}
	value, warnings, err := parse(text)
	if err != nil {
		a.refuse(why.BadAnnotation, annotationField(key), "%v", err)
		return value, false
	}
	a.values(annotationField(key), warnings)
	return value, true
}

func containers(pod *corev1.Pod) iter.Seq2[string, *corev1.Container] {
	return func(yield func(string, *corev1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(indexed("spec.initContainers", i), &pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(indexed("spec.containers", i), &pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

func labelField(key string) string      { return "metadata.labels[" + key + "]" }
func annotationField(key string) string { return "metadata.annotations[" + key + "]" }

func indexed(list string, i int) string { return fmt.Sprintf("%s[%d]", list, i) }

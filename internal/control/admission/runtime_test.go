package admission_test

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/admission"
)

// TestAPodGetsTheRunTimeOfItsJob: the shorter one of annotation and deadline, unless the pod says one itself.
func TestAPodGetsTheRunTimeOfItsJob(t *testing.T) {
	t.Parallel()
	deadline := func(seconds int64) podOption {
		return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }
	}
	job := func(annotated string, deadline int64) *batchv1.Job {
		j := &batchv1.Job{}
		if j.Name = "j"; annotated != "" {
			j.Annotations = map[string]string{annotation.ExpectedRuntime: annotated}
		}
		if deadline != 0 {
			j.Spec.ActiveDeadlineSeconds = &deadline
		}
		return j
	}
	says := func(text string) *corev1.Pod { return newPod(annot(annotation.ExpectedRuntime, text)) }
	bad := func(text string) []string {
		return []string{"Job j: " + runTimeRule(text) + "; it has no effect"}
	}
	for name, c := range map[string]struct {
		pod      *corev1.Pod
		job      *batchv1.Job
		want     string
		warnings []string
	}{
		"no Job":                               {newPod(), nil, "", nil},
		"a Job that declares nothing":          {newPod(), job("", 0), "", nil},
		"an annotation":                        {newPod(), job("90m", 0), "1h30m0s", nil},
		"a deadline":                           {newPod(), job("", 3600), "1h0m0s", nil},
		"an annotation before a deadline":      {newPod(), job("10m", 3600), "10m0s", nil},
		"an annotation after a deadline":       {newPod(), job("2h", 3600), "1h0m0s", nil},
		"a pod that declares one":              {says("5h"), job("2h", 3600), "5h", nil},
		"a pod with one that cannot be read":   {says("soon"), job("2h", 0), "soon", nil},
		"a pod with an empty one":              {says(""), job("2h", 0), "", nil},
		"a pod whose own deadline is earlier":  {newPod(deadline(60)), job("", 3600), "", nil},
		"a pod whose own deadline is later":    {newPod(deadline(7200)), job("", 3600), "1h0m0s", nil},
		"a deadline that is negative":          {newPod(), job("", -1), "", nil},
		"a deadline that overflows":            {newPod(), job("", 1<<62), "8760h0m0s", nil},
		"an annotation that cannot be read":    {newPod(), job("soon", 0), "", bad(`"soon"`)},
		"an annotation that is negative":       {newPod(), job("-1h", 0), "", bad(`"-1h"`)},
		"an annotation of more than a year":    {newPod(), job("8761h", 0), "", bad(`"8761h"`)},
		"an annotation without a unit":         {newPod(), job("3600", 0), "", bad(`"3600"`)},
		"a bad annotation beside a deadline":   {newPod(), job("0s", 60), "1m0s", bad(`"0s"`)},
		"an annotation of a word and no value": {newPod(), job(" ", 0), "", bad(`" "`)},
	} {
		before := c.pod.DeepCopy()
		got, answer := admission.DeclareRunTime(c.pod, c.job)
		if text := got.Annotations[annotation.ExpectedRuntime]; text != c.want || !answer.Allowed() ||
			!slices.Equal(answer.Warnings, c.warnings) {
			t.Errorf("%s: got %q, warnings %q, want %q, %q", name, text, answer.Warnings, c.want, c.warnings)
		}
		if len(c.pod.Annotations) != len(before.Annotations) {
			t.Errorf("%s: the pod of the caller was changed", name)
		}
		if answer := admission.Create(got, nil); c.want != "" && c.want != "soon" && !answer.Allowed() {
			t.Errorf("%s: what is written would be refused: %v", name, answer.Refusals)
		}
	}
}

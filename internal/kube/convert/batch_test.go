package convert_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func TestBatchAmounts(t *testing.T) {
	t.Parallel()
	const cpu, memory = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
	first, second := object.Container("a", ""), object.Container("b", "")
	spec := func(text string) object.PodOption { return object.Annotation(annotation.ExtendedResourceSpecKey, text) }
	type amounts = map[string]convert.Batch
	tests := map[string]struct {
		pod   *corev1.Pod
		want  amounts
		whole convert.Batch
	}{
		"no batch resource": {pod: object.Pod("p", first, object.Requests("cpu", "1"))},
		"a limit above the request": {
			pod:   object.Pod("p", first, object.Requests(cpu, "500"), object.Limits(cpu, "2k")),
			want:  amounts{"a": {CPU: true, MilliCPU: 500, LimitMilliCPU: 2000}},
			whole: convert.Batch{CPU: true, MilliCPU: 500, LimitMilliCPU: 2000},
		},
		"a limit alone is a request": {
			pod:   object.Pod("p", first, object.Limits(cpu, "700")),
			want:  amounts{"a": {CPU: true, MilliCPU: 700, LimitMilliCPU: 700}},
			whole: convert.Batch{CPU: true, MilliCPU: 700, LimitMilliCPU: 700},
		},
		"containers add up, and one without a limit leaves the pod without": {
			pod: object.Pod("p", first, object.Both(cpu, "500", memory, "1Gi"), second, object.Requests(cpu, "250"),
				object.Limits(memory, "1Gi")),
			want: amounts{
				"a": {CPU: true, Memory: true, MilliCPU: 500, LimitMilliCPU: 500, LimitBytes: 1 << 30},
				"b": {CPU: true, Memory: true, MilliCPU: 250, LimitBytes: 1 << 30},
			},
			whole: convert.Batch{CPU: true, Memory: true, MilliCPU: 750, LimitBytes: 2 << 30},
		},
		"a container with ordinary CPUs leaves the pod's weight to the kubelet": {
			pod:  object.Pod("p", first, object.Both(cpu, "500"), second, object.Requests("cpu", "1")),
			want: amounts{"a": {CPU: true, MilliCPU: 500, LimitMilliCPU: 500}},
		},
		"the alias": {
			pod:   object.Pod("p", first, object.Both("koordinator.sh/batch-cpu", "500")),
			want:  amounts{"a": {CPU: true, MilliCPU: 500, LimitMilliCPU: 500}},
			whole: convert.Batch{CPU: true, MilliCPU: 500, LimitMilliCPU: 500},
		},
		"the canonical name wins over the alias": {
			pod:   object.Pod("p", first, object.Both(cpu, "500", "koordinator.sh/batch-cpu", "900")),
			want:  amounts{"a": {CPU: true, MilliCPU: 500, LimitMilliCPU: 500}},
			whole: convert.Batch{CPU: true, MilliCPU: 500, LimitMilliCPU: 500},
		},
		"mid resources": {
			pod:   object.Pod("p", first, object.Both("kubernetes.io/mid-cpu", "500")),
			want:  amounts{"a": {CPU: true, MilliCPU: 500, LimitMilliCPU: 500}},
			whole: convert.Batch{CPU: true, MilliCPU: 500, LimitMilliCPU: 500},
		},
		"the annotation, for a container whose resources name none": {
			pod: object.Pod("p", first, second, object.Both(cpu, "100"),
				spec(`{"containers":{"a":{"requests":{"`+cpu+`":"500"}},"b":{"requests":{"`+cpu+`":"900"}}}}`)),
			want: amounts{
				"a": {CPU: true, MilliCPU: 500}, "b": {CPU: true, MilliCPU: 100, LimitMilliCPU: 100},
			},
			whole: convert.Batch{CPU: true, MilliCPU: 600},
		},
		"an annotation that cannot be read has no effect":    {pod: object.Pod("p", first, spec(`{"containers":`))},
		"a negative amount in the annotation has no effect":  {pod: object.Pod("p", first, spec(negative))},
		"a container of the annotation that the pod has not": {pod: object.Pod("p", first, spec(other))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, whole := convert.BatchAmounts(test.pod)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.whole, whole); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
		})
	}
}

const (
	negative = `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"-5"}}}}`
	other    = `{"containers":{"x":{"requests":{"kubernetes.io/batch-cpu":"5"}}}}`
)

func TestASandboxHasTheBatchAmountsOfItsAnnotation(t *testing.T) {
	t.Parallel()
	got := convert.SandboxBatch(map[string]string{
		annotation.ExtendedResourceSpecKey: `{"containers":{"b":{},
			"a":{"limits":{"kubernetes.io/batch-memory":"1Gi"}}}}`,
	})
	want := map[string]convert.Batch{"a": {Memory: true, LimitBytes: 1 << 30}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "null", negative} {
		if got := convert.SandboxBatch(map[string]string{annotation.ExtendedResourceSpecKey: text}); got != nil {
			t.Errorf("%s: got %v, want none", text, got)
		}
	}
}

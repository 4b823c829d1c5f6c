package convert_test

import (
	"fmt"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/object"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func elasticQuota(group string) *v1alpha1.ElasticQuota {
	return &v1alpha1.ElasticQuota{
		TypeMeta: metav1.TypeMeta{APIVersion: group + "/v1alpha1", Kind: "ElasticQuota"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "q", Namespace: "n", Labels: map[string]string{}, Annotations: map[string]string{},
		},
	}
}

func TestQuotaReadsEveryLabelAndAnnotation(t *testing.T) {
	t.Parallel()
	for _, group := range v1alpha1.Groups() {
		q := elasticQuota(group)
		q.Spec = v1alpha1.ElasticQuotaSpec{
			Min: object.List("cpu", "1500m", "memory", "1Gi"), Max: object.List("cpu", "4", "memory", "8Gi",
				"nvidia.com/gpu", "2"),
		}
		q.Labels = map[string]string{
			annotation.QuotaParent: "p", annotation.QuotaTreeID: "t", annotation.QuotaIsParent: "true",
			annotation.QuotaIsRoot: "true", annotation.QuotaIgnoreDefaultTree: "true",
			annotation.QuotaAllowForceUpdate: "true", annotation.QuotaAllowLent: "false",
		}
		q.Annotations = map[string]string{
			annotation.QuotaSharedWeight: `{"cpu":"2","nvidia.com/gpu":0}`, annotation.QuotaTotal: `{"cpu":100}`,
			annotation.QuotaNamespaces: `["a","b"]`, annotation.QuotaStrictKeys: `["nvidia.com/gpu"]`,
			annotation.QuotaResourceKeys: `["cpu"]`, annotation.QuotaUnschedulable: `{}`,
			annotation.QuotaAdmission: `{}`, annotation.ExpectedRuntime: "90m",
		}
		want := quota.Spec{
			Name: "q", Namespace: "n", Group: group, Parent: "p", Tree: "t",
			IsParent: true, IsRoot: true, IgnoreDefaultTree: true, ForceUpdate: true, KeepsMin: true,
			Namespaces: []string{"a", "b"},
			Min:        amount.List{"cpu": 1500, "memory": 1 << 30},
			Max:        amount.List{"cpu": 4000, "memory": 8 << 30, "nvidia.com/gpu": 2},
			Weight:     amount.List{"cpu": 2000, "nvidia.com/gpu": 0}, Total: amount.List{"cpu": 100_000},
			Strict: []string{"nvidia.com/gpu"}, RunTime: 90 * time.Minute,
		}
		got, problems := convert.Quota(q)
		if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
			t.Errorf("%s: problems %v, spec (-want +got):\n%s", group, problems, diff)
		}
	}
}

func TestQuotaWithoutLabelsIsALeafThatLends(t *testing.T) {
	t.Parallel()
	got, problems := convert.Quota(elasticQuota(v1alpha1.GroupName))
	want := quota.Spec{Name: "q", Namespace: "n", Group: v1alpha1.GroupName}
	if diff := cmp.Diff(want, got); diff != "" || len(problems) > 0 {
		t.Errorf("problems %v, spec (-want +got):\n%s", problems, diff)
	}
}

func TestQuotaReportsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	q := elasticQuota(v1alpha1.GroupName)
	q.Spec.Max = object.List("cpu", "-1")
	q.Labels = map[string]string{annotation.QuotaIsParent: "yes", annotation.QuotaAllowLent: "False"}
	q.Annotations = map[string]string{
		annotation.QuotaSharedWeight: `{"cpu":`, annotation.QuotaTotal: `{"cpu":-1}`, annotation.QuotaNamespaces: `a,b`,
		annotation.QuotaAdmission: `[]`, annotation.ExpectedRuntime: "0s",
	}
	got, problems := convert.Quota(q)
	if got.IsParent || got.KeepsMin || got.Weight != nil || got.Total != nil || got.Namespaces != nil ||
		got.Max["cpu"] != -1000 {
		t.Errorf("spec %+v, want the defaults of what cannot be read, and the negative max", got)
	}
	const prefix = "quota.scheduling.koordinator.sh/"
	want := map[string]string{
		"metadata.labels[" + prefix + "is-parent]":           `Unsupported value "yes": supported true, false`,
		"metadata.labels[" + prefix + "allow-lent-resource]": `Unsupported value "False": supported true, false`,
		"metadata.annotations[" + prefix + "shared-weight]":  "byte 7: unexpected end of JSON input",
		"metadata.annotations[" + prefix + "total-resource]": "byte 7: cpu: must not be negative",
		"metadata.annotations[" + prefix + "namespaces]": "byte 1: invalid character 'a' looking for beginning " +
			"of value",
		"metadata.annotations[" + prefix + "admission]": "byte 1: want an object, got array",
		"metadata.annotations[tenon.sh/expected-runtime]": `byte 0: Invalid value "0s": must be a Go duration from ` +
			"1s to 8760h, such as 90s, 1h30m or 48h",
	}
	texts := map[string]string{}
	for _, p := range problems {
		texts[p.Field()] = p.Text
		if p.Object != "ElasticQuota/n/q" {
			t.Errorf("%v: object %s", p, p.Object)
		}
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestAmountsAreRoundedUpAndNeverWrap(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		resource, quantity string
		want               int64
	}{
		{"cpu", "1", 1000},
		{"cpu", "0.1m", 1},
		{"cpu", "100u", 1},
		{"cpu", "9223372036854775.807", math.MaxInt64},
		{"cpu", "9223372036854775.806", math.MaxInt64 - 1},
		{"cpu", "9223372036854776", math.MaxInt64},
		{"cpu", "1844674407370955161", math.MaxInt64}, // Koordinator's unlimited quota
		{"cpu", "-9223372036854776", math.MinInt64},
		{"memory", "1.5Gi", 3 << 29},
		{"memory", "0.5", 1},
		{"memory", "9223372036854775807", math.MaxInt64},
		{"memory", "16Ei", math.MaxInt64},
		{"memory", "1e30", math.MaxInt64},
		{"memory", "-1", -1},
		{"kubernetes.io/batch-cpu", "2500", 2500},
		{"nvidia.com/gpu", "8", 8},
	} {
		got := convert.Amounts(object.List(test.resource, test.quantity))[test.resource]
		if got != test.want {
			t.Errorf("%s of %s: got %d, want %d", test.quantity, test.resource, got, test.want)
		}
	}
}

func TestAmountsSurviveAResourceList(t *testing.T) {
	names := []string{"cpu", "memory", "hugepages-2Mi", "koordinator.sh/gpu-memory", "koordinator.sh/gpu-core"}
	rapid.Check(t, func(t *rapid.T) {
		want := amount.List(rapid.MapOfN(rapid.SampledFrom(names), rapid.Int64(), 1, 5).Draw(t, "amounts"))
		list := convert.ResourceList(want)
		text := annotation.Amounts(list).String()
		if got := convert.Amounts(list); !cmp.Equal(want, got) {
			t.Fatalf("%v became %s, which is %v", want, text, got)
		}
	})
	got := annotation.Amounts(convert.ResourceList(amount.List{
		"cpu": 1500, "memory": 3 << 30, "koordinator.sh/gpu-memory-ratio": 2048,
	})).String()
	if want := `{"cpu":"1500m","koordinator.sh/gpu-memory-ratio":"2048","memory":"3Gi"}`; got != want {
		t.Errorf("written as %s, want %s", got, want)
	}
}

func TestPodAmountsAreTheSchedulers(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	requests := func(pairs ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: object.List(pairs...)}
	}
	for name, test := range map[string]struct {
		pod  corev1.Pod
		want amount.List
	}{
		"containers": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Resources: requests("cpu", "1", "nvidia.com/gpu", "1")}, {Resources: requests("cpu", "500m")},
			}}},
			amount.List{"cpu": 1500, "nvidia.com/gpu": 1},
		},
		"init containers, a sidecar and overhead": {
			corev1.Pod{Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{
					{RestartPolicy: &always, Resources: requests("cpu", "1")}, {Resources: requests("cpu", "5")},
				},
				Containers: []corev1.Container{{Resources: requests("cpu", "2")}},
				Overhead:   object.List("cpu", "250m"),
			}},
			amount.List{"cpu": 6250},
		},
		"resources of the pod": {
			corev1.Pod{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Resources: requests("cpu", "2", "nvidia.com/gpu", "1")}},
				Resources:  &corev1.ResourceRequirements{Requests: object.List("cpu", "3", "memory", "1Gi")},
			}},
			amount.List{"cpu": 3000, "memory": 1 << 30, "nvidia.com/gpu": 1},
		},
		"a resize that is not done": {
			corev1.Pod{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: requests("cpu", "1")}}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					Name: "c", AllocatedResources: object.List("cpu", "3"),
					Resources: &corev1.ResourceRequirements{Requests: object.List("cpu", "3")},
				}}},
			},
			amount.List{"cpu": 3000},
		},
		"a resize that the node has no room for": {
			corev1.Pod{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: requests("cpu", "3")}}},
				Status: corev1.PodStatus{
					Conditions: []corev1.PodCondition{{
						Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible,
					}},
					ContainerStatuses: []corev1.ContainerStatus{{
						Name: "c", Resources: &corev1.ResourceRequirements{Requests: object.List("cpu", "1")},
					}},
				},
			},
			amount.List{"cpu": 1000},
		},
		"no requests": {corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, convert.PodAmounts(&test.pod)); diff != "" {
				t.Errorf("amounts (-want +got):\n%s", diff)
			}
		})
	}
}

// drawAsking draws a pod of which each part that changes its requests is there or not: most have none of them.
func drawAsking(t *rapid.T) *corev1.Pod {
	seldom := func(label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 0 }
	names := []string{"cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"}
	amounts := []string{"0", "1", "2", "100m", "0.1m", "1u", "1.5Gi", "1e3", "9223372036854775807", "1e30"}
	list := func(label string) corev1.ResourceList {
		return object.List(rapid.Custom(func(t *rapid.T) (pairs []string) {
			for _, name := range names {
				if rapid.Bool().Draw(t, name) {
					pairs = append(pairs, name, rapid.SampledFrom(amounts).Draw(t, "amount"))
				}
			}
			return pairs
		}).Draw(t, label)...)
	}
	pod := &corev1.Pod{}
	add := func(to *[]corev1.Container, statuses *[]corev1.ContainerStatus, name string) *corev1.Container {
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(name)}}
		*to = append(*to, c)
		status := corev1.ContainerStatus{Name: name}
		if rapid.Bool().Draw(t, "reported") {
			status.Resources = c.Resources.DeepCopy()
			status.AllocatedResources = status.Resources.DeepCopy().Requests
		}
		if status.Resources != nil && seldom("resized") {
			if status.Resources.Requests = list("actual"); rapid.Bool().Draw(t, "grown") {
				maps.Copy(status.Resources.Requests, c.Resources.Requests)
			}
		}
		if seldom("allocated") {
			status.AllocatedResources = list("allocated")
		}
		if !seldom("unreported") {
			*statuses = append([]corev1.ContainerStatus{status}, *statuses...)
		}
		return &(*to)[len(*to)-1]
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "containers") {
		add(&pod.Spec.Containers, &pod.Status.ContainerStatuses, fmt.Sprint("c", i))
	}
	for i := range max(rapid.IntRange(-8, 2).Draw(t, "initContainers"), 0) {
		c := add(&pod.Spec.InitContainers, &pod.Status.InitContainerStatuses, fmt.Sprint("i", i))
		if always := corev1.ContainerRestartPolicyAlways; rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = &always
		}
	}
	if seldom("overhead") {
		pod.Spec.Overhead = list("of the sandbox")
	}
	if seldom("pod-level") {
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: list("of the pod")}
		if rapid.Bool().Draw(t, "pod resized") {
			pod.Status.Resources = &corev1.ResourceRequirements{Requests: list("of the pod, actual")}
			pod.Status.AllocatedResources = list("of the pod, allocated")
		}
	}
	if rapid.Bool().Draw(t, "infeasible") {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible,
		}}
	}
	return pod
}

// The sum of containers that most pods need is the scheduler's, also where it is rounded or does not fit an int64; and
// the status of a pod that is not resized changes nothing.
func TestPodAmountsOfAnyPodAreTheSchedulers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for range 8 {
			checkAmounts(t, drawAsking(t))
		}
	})
}

func checkAmounts(t *rapid.T, pod *corev1.Pod) {
	plain, copied := pod.DeepCopy(), pod.DeepCopy()
	want := convert.Amounts(resource.PodRequests(copied, resource.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}))
	got := convert.PodAmounts(pod)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("amounts of %v (-scheduler's +got):\n%s", pod, diff)
	}
	// Upstream adds the overhead to amounts that a pod-level request shares.
	if again := convert.PodAmounts(pod); pod.Spec.Resources == nil && !cmp.Equal(again, got) {
		t.Fatalf("the second sum, %v, is not the first, %v", again, got)
	}
	plain.Status = corev1.PodStatus{}
	if diff := cmp.Diff(convert.PodAmounts(plain), got); diff != "" && !convert.IsResizing(pod) {
		t.Fatalf("amounts of %v, not resized (-without its status +got):\n%s", pod, diff)
	}
}

func TestLabelsOfPods(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}}
	if got := convert.PodsOf(pod); got != (quota.PodsOf{Namespace: "n"}) || !convert.IsPreemptible(pod) {
		t.Errorf("without labels: %+v, preemptible %v", got, convert.IsPreemptible(pod))
	}
	pod.Labels = map[string]string{annotation.QuotaName: "q", annotation.QuotaPreemptible: "false"}
	if got := convert.PodsOf(pod); got != (quota.PodsOf{Namespace: "n", Quota: "q"}) || convert.IsPreemptible(pod) {
		t.Errorf("with labels: %+v, preemptible %v", got, convert.IsPreemptible(pod))
	}
}

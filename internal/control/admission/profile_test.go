package admission_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

func batchProfile(change func(*v1alpha1.ClusterColocationProfile)) *v1alpha1.ClusterColocationProfile {
	p := &v1alpha1.ClusterColocationProfile{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec = v1alpha1.ClusterColocationProfileSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "spark"}},
		QoSClass: "BE", PriorityClassName: "koord-batch",
	}
	if change != nil {
		change(p)
	}
	return p
}

func colocate(t *testing.T, pod *corev1.Pod, all ...*v1alpha1.ClusterColocationProfile) (
	*corev1.Pod, admission.Answer,
) {
	t.Helper()
	var profiles []*admission.Profile
	for _, p := range all {
		profile, err := admission.NewProfile(p)
		if err != nil {
			t.Fatal(err)
		}
		profiles = append(profiles, profile)
	}
	return admission.Colocate(pod, map[string]string{"team": "data"}, profiles, func(string) int { return 50 })
}

func spark(options ...object.PodOption) *corev1.Pod {
	return object.Pod("spark", append([]object.PodOption{
		object.Label("app", "spark"), object.Requests("cpu", "1500m", "memory", "2Gi"),
		object.Limits("cpu", "3", "memory", "4Gi"),
	}, options...)...)
}

func TestAProfileMakesABatchPod(t *testing.T) {
	t.Parallel()
	pod := spark(func(p *corev1.Pod) {
		p.Spec.Priority = new(int32(0))
		p.Spec.PreemptionPolicy = new(corev1.PreemptLowerPriority)
		p.Spec.Overhead = object.List("cpu", "250m", "memory", "64Mi")
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{
			Limits: object.List("cpu", "100m"),
		}}}
	})
	before := pod.DeepCopy()
	got, answer := colocate(t, pod, batchProfile(nil))
	if !answer.Allowed() || !cmp.Equal(pod, before) {
		t.Fatalf("refused %v, or the pod was changed", answer.Refusals)
	}
	main := got.Spec.Containers[0].Resources
	if diff := cmp.Diff(corev1.ResourceRequirements{
		Requests: object.List("kubernetes.io/batch-cpu", "1500", "kubernetes.io/batch-memory", "2Gi"),
		Limits:   object.List("kubernetes.io/batch-cpu", "3000", "kubernetes.io/batch-memory", "4Gi"),
	}, main); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(corev1.ResourceRequirements{
		Requests: object.List("kubernetes.io/batch-cpu", "100"), Limits: object.List("kubernetes.io/batch-cpu", "100"),
	}, got.Spec.InitContainers[0].Resources); diff != "" {
		t.Errorf("a limit without a request: %s", diff)
	}
	if diff := cmp.Diff(object.List("cpu", "250m", "memory", "64Mi"), got.Spec.Overhead); diff != "" {
		t.Error(diff)
	}
	if got.Labels[annotation.QoSClass] != "BE" || got.Spec.PriorityClassName != "koord-batch" ||
		got.Spec.Priority != nil || got.Spec.PreemptionPolicy != nil {
		t.Errorf("got %v, %+v", got.Labels, got.Spec)
	}
	spec, _, err := annotation.ParseExtendedResourceSpec(got.Annotations[annotation.ExtendedResourceSpecKey])
	if err != nil || !spec.Containers[got.Spec.Containers[0].Name].Requests["kubernetes.io/batch-cpu"].Equal(
		main.Requests["kubernetes.io/batch-cpu"]) {
		t.Errorf("annotation %v, %v", spec, err)
	}
	if len(answer.Warnings) != 2 {
		t.Errorf("warnings %q", answer.Warnings)
	}
}

func TestALimitRangeDoesNotMakeABatchPodAnOrdinaryOne(t *testing.T) {
	t.Parallel()
	first, _ := colocate(t, spark(), batchProfile(nil))
	injected := first.DeepCopy()
	r := &injected.Spec.Containers[0].Resources
	r.Limits["cpu"], r.Requests["memory"] = object.List("cpu", "1")["cpu"], object.List("cpu", "1Gi")["cpu"]
	again, answer := colocate(t, injected, batchProfile(func(p *v1alpha1.ClusterColocationProfile) {
		p.Spec.LabelSuffixes = map[string]string{"app": "-x"} // a pod that was changed is not changed again
	}))
	if diff := cmp.Diff(first, again); diff != "" || !answer.Allowed() {
		t.Errorf("what a LimitRange added: %s%v", diff, answer.Refusals)
	}
}

// TestALimitRangeAddsNothingToWhatABatchPodRequests where no profile matches: what the author wrote stays.
func TestALimitRangeAddsNothingToWhatABatchPodRequests(t *testing.T) {
	t.Parallel()
	const note = "LimitRanger plugin set: cpu, memory request for container spark; " +
		"cpu, memory limit for container spark"
	batch := []string{"kubernetes.io/batch-cpu", "500", "kubernetes.io/batch-memory", "1Gi"}
	with := func(more ...string) []string { return append(slices.Clone(batch), more...) }
	for name, c := range map[string]struct {
		note, class                          string
		requests, limits, wanted, wantLimits []string
		warnings                             int
	}{
		"requests and limits of a LimitRange": {
			note, "BE", with("cpu", "1", "memory", "1Gi"), with("cpu", "2", "memory", "2Gi"), batch, batch, 4,
		},
		"the author's CPU": {
			"LimitRanger plugin set: memory request for container spark", "BE",
			with("cpu", "1", "memory", "1Gi"), batch, with("cpu", "1"), batch, 1,
		},
		"the author's limit": {
			"LimitRanger plugin set: cpu request for container spark", "BE", with("cpu", "1"), with("cpu", "2"), batch,
			with("cpu", "2"), 1,
		},
		"another container's": {
			"LimitRanger plugin set: cpu request for init container other", "BE",
			with("cpu", "1"), batch, with("cpu", "1"), batch, 0,
		},
		"memory beside batch CPU alone": {
			note, "BE",
			[]string{"kubernetes.io/batch-cpu", "500", "cpu", "1", "memory", "1Gi"},
			nil,
			[]string{"kubernetes.io/batch-cpu", "500", "memory", "1Gi"},
			nil, 1,
		},
		"without a LimitRange":   {"", "BE", with("cpu", "1"), batch, with("cpu", "1"), batch, 0},
		"a pod of another class": {note, "LS", with("cpu", "1"), batch, with("cpu", "1"), batch, 0},
		"a note of something else": {
			"LimitRanger plugin set: ", "BE", with("cpu", "1"), batch, with("cpu", "1"), batch, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := object.Pod("spark", object.Label(annotation.QoSClass, c.class), object.Requests(c.requests...),
				object.Limits(c.limits...))
			pod.Annotations = map[string]string{"kubernetes.io/limit-ranger": c.note}
			pod.Spec.Containers[0].Name = "spark"
			got, answer := colocate(t, pod)
			want := pod.DeepCopy()
			want.Spec.Containers[0].Resources = corev1.ResourceRequirements{
				Requests: object.List(c.wanted...), Limits: object.List(c.wantLimits...),
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || len(answer.Warnings) != c.warnings {
				t.Errorf("(-want +got):\n%s%q", diff, answer.Warnings)
			}
		})
	}
}

func TestEachFieldOfAProfile(t *testing.T) {
	t.Parallel()
	name := func(name string) func(*v1alpha1.ClusterColocationProfile) {
		return func(p *v1alpha1.ClusterColocationProfile) {
			p.Name, p.Spec.Labels = name, map[string]string{"by": name}
		}
	}
	for what, c := range map[string]struct {
		change func(*v1alpha1.ClusterColocationProfile)
		look   func(*corev1.Pod) string
		want   string
	}{
		"labels win over the pod's": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Labels = map[string]string{"app": "other"}
		}, func(p *corev1.Pod) string { return p.Labels["app"] }, "other"},
		"annotations": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Annotations = map[string]string{"a": "b"}
		}, func(p *corev1.Pod) string { return p.Annotations["a"] }, "b"},
		"a label is copied": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.LabelKeysMapping = map[string]string{"app": "copy", "none": "empty"}
		}, func(p *corev1.Pod) string { return p.Labels["copy"] + p.Labels["empty"] }, "spark"},
		"an annotation is copied": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Annotations = map[string]string{"a": "b"}
			p.Spec.AnnotationKeysMapping = map[string]string{"a": "c"}
		}, func(p *corev1.Pod) string { return p.Annotations["c"] }, "b"},
		"a suffix": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.LabelSuffixes = map[string]string{"app": "-be", "none": "x"}
		}, func(p *corev1.Pod) string { return p.Labels["app"] }, "spark-be"},
		"the priority inside the class": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.KoordinatorPriority = new(int32(-5))
		}, func(p *corev1.Pod) string { return p.Labels[annotation.Priority] }, "-5"},
		"the scheduler": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.SchedulerName = "koord-scheduler"
		}, func(p *corev1.Pod) string { return p.Spec.SchedulerName }, "koord-scheduler"},
		"a patch": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Patch = runtime.RawExtension{Raw: []byte(`{"spec":{"tolerations":[{"key":"batch"}]}}`)}
		}, func(p *corev1.Pod) string { return p.Spec.Tolerations[0].Key }, "batch"},
		"resources that are to be kept": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Annotations = map[string]string{annotation.SkipUpdateResources: "true"}
		}, func(p *corev1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }, "1500m"},
		"mid pods": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.QoSClass, p.Spec.PriorityClassName = "LS", "koord-mid"
		}, func(p *corev1.Pod) string {
			q := p.Spec.Containers[0].Resources.Requests["kubernetes.io/mid-cpu"]
			return q.String()
		}, "1500"},
		"prod pods keep their resources": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.QoSClass, p.Spec.PriorityClassName = "LS", "koord-prod"
		}, func(p *corev1.Pod) string { return p.Spec.Containers[0].Resources.Requests.Cpu().String() }, "1500m"},
		"half of the pods, drawn 50": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Probability = new(intstr.FromString("50%"))
		}, func(p *corev1.Pod) string { return p.Labels[annotation.QoSClass] }, ""},
		"51 of 100 pods, drawn 50": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Probability = new(intstr.FromInt32(51))
		}, func(p *corev1.Pod) string { return p.Labels[annotation.QoSClass] }, "BE"},
		"another namespace": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
		}, func(p *corev1.Pod) string { return p.Labels[annotation.QoSClass] }, ""},
		"every pod": {func(p *v1alpha1.ClusterColocationProfile) {
			p.Spec.Selector = nil
		}, func(p *corev1.Pod) string { return p.Labels[annotation.QoSClass] }, "BE"},
	} {
		got, answer := colocate(t, spark(), batchProfile(c.change))
		if value := c.look(got); value != c.want || !answer.Allowed() {
			t.Errorf("%s: got %q, %v, want %q", what, value, answer.Refusals, c.want)
		}
	}
	got, _ := colocate(t, spark(), batchProfile(name("a")), batchProfile(name("b")))
	if got.Labels["by"] != "b" {
		t.Errorf("of a and b, %s wins", got.Labels["by"])
	}
	none, _ := colocate(t, spark(object.Label("app", "web")), batchProfile(nil))
	if none.Labels[annotation.QoSClass] != "" {
		t.Error("a pod with other labels is changed")
	}
	alias, _ := colocate(t, object.Pod("a", object.Both("koordinator.sh/batch-cpu", "500")))
	if q := alias.Spec.Containers[0].Resources.Limits["kubernetes.io/batch-cpu"]; q.Value() != 500 {
		t.Errorf("the alias became %v", alias.Spec.Containers[0].Resources)
	}
	equal, answer := colocate(t, object.Pod("a", object.Both("koordinator.sh/batch-cpu", "500",
		"kubernetes.io/batch-cpu", "0.5k")))
	if q := equal.Spec.Containers[0].Resources.Requests; len(q) != 1 || !answer.Allowed() {
		t.Errorf("equal amounts under both names became %v: %v", q, answer.Refusals)
	}
	_, answer = colocate(t, object.Pod("a", object.Both("koordinator.sh/mid-memory", "2Gi",
		"kubernetes.io/mid-memory", "1Gi")))
	want := "spec.containers[0].resources.limits[koordinator.sh/mid-memory]: conflicting values for " +
		"kubernetes.io/mid-memory and its alias koordinator.sh/mid-memory: 1Gi and 2Gi"
	if len(answer.Refusals) != 2 || answer.Refusals[1].String() != want {
		t.Errorf("refusals %v, want one of the requests and %s", answer.Refusals, want)
	}
}

func TestWhatAProfileMayNotSay(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		change func(*v1alpha1.ClusterColocationProfileSpec)
		want   string
	}{
		"a selector that cannot be read": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}
		}, "spec.selector: "},
		"a namespace selector without values": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.NamespaceSelector = &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In"}},
			}
		}, "spec.namespaceSelector: "},
		"101 percent": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Probability = new(intstr.FromString("101%"))
		}, `spec.probability: Invalid value "101%": must be 0 to 100, or 0% to 100%`},
		"a negative probability": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Probability = new(intstr.FromInt32(-1))
		}, "spec.probability: "},
		"a probability in words": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Probability = new(intstr.FromString("half"))
		}, "spec.probability: "},
		"a class that there is not": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.QoSClass = "Batch"
		}, "spec.qosClass: "},
		"a patch that is a list": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Patch.Raw = []byte("[]")
		}, "spec.patch: "},
		"a patch of another type": {func(s *v1alpha1.ClusterColocationProfileSpec) {
			s.Patch.Raw = []byte(`{"spec":{"containers":"none"}}`)
		}, "spec.patch: "},
	} {
		p := batchProfile(nil)
		c.change(&p.Spec)
		_, err := admission.NewProfile(p)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
		profiles := []*admission.Profile{admission.Unusable(p, err)}
		same, answer := admission.Colocate(spark(), nil, profiles, func(string) int { return 0 })
		warns := len(answer.Warnings) == 1 && strings.Contains(answer.Warnings[0], p.Name+": has no effect: "+c.want)
		if d := cmp.Diff(spark(), same); d != "" || !warns || !answer.Allowed() {
			t.Errorf("%s, where it was created all the same: warnings %q, the pod changes (-want +got):\n%s", what,
				answer.Warnings, d)
		}
	}
	whole := spark(func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Limits: object.List("cpu", "1")}
	})
	if _, answer := colocate(t, whole, batchProfile(nil)); answer.Allowed() {
		t.Error("resources of the whole pod are accepted")
	}
}

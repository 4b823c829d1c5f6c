package webhook_test

import (
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tenon-project/tenon/api/annotation"
	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/admission"
	"github.com/tenon-project/tenon/internal/control/webhook"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

func template(p *corev1.Pod) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: p.ObjectMeta, Spec: p.Spec}
}

// workloads are one object of each kind with a template of p, and the path of the template.
func workloads(p *corev1.Pod) map[runtime.Object]string {
	t := template(p)
	t.Name, t.Namespace = "", ""
	if t.Spec.SchedulerName == "" {
		t.Spec.SchedulerName = "tenon-scheduler"
	}
	return map[runtime.Object]string{
		&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: t}}:                        "spec.template.",
		&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: t}}:                      "spec.template.",
		&appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: t}}:                          "spec.template.",
		&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: t}}:                        "spec.template.",
		&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &t}}: "spec.template.",
		&batchv1.Job{Spec: batchv1.JobSpec{Template: t}}:                                    "spec.template.",
		&batchv1.CronJob{Spec: batchv1.CronJobSpec{
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: t}},
		}}: "spec.jobTemplate.spec.template.",
	}
}

// TestAWorkloadIsWarnedOfWhatItsPodsAreWarnedOf compares the warnings about a workload with the answers about a pod.
func TestAWorkloadIsWarnedOfWhatItsPodsAreWarnedOf(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	keys := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for pair := range slices.Chunk(pairs, 2) {
			out[pair[0]] = pair[1]
		}
		return out
	}
	limited := with()
	limited.Labels = keys(annotation.QoSClass, "LSR")
	limited.Spec.Containers[0].Resources.Requests = nil
	limited.Spec.Containers[0].Resources.Limits = with("cpu").Spec.Containers[0].Resources.Requests
	for name, p := range map[string]*corev1.Pod{
		"nothing of Tenon": with("cpu"),
		"keys without effect": pod(keys("koordinator.sh/foo", "x"), keys("koordinator.sh/cpuBurst", `{"policy":"auto"}`,
			"gang.scheduling.koordinator.sh/minavailable", "2")),
		"a class that does not exist":       pod(keys(annotation.QoSClass, "GOLD", annotation.Priority, "x"), nil),
		"a class without CPUs":              pod(keys(annotation.QoSClass, "LSR"), nil),
		"requests that the API server sets": limited,
		"an allocation of the scheduler":    pod(nil, keys(annotation.ResourceStatusKey, "{}")),
		"a share of a GPU that is none":     with("koordinator.sh/gpu-core"),
		"an unreadable plugin list": func() *corev1.Pod {
			p := pod(keys(annotation.QoSClass, "LSR"), keys(annotation.RequiredPlugins, "{"))
			p.Spec.Containers[0].Resources.Requests = with("cpu").Spec.Containers[0].Resources.Requests
			return p
		}(),
	} {
		created := typed(p.DeepCopy())
		for c := range created.Spec.Containers {
			r := &created.Spec.Containers[c].Resources
			if r.Requests == nil {
				r.Requests = r.Limits
			}
		}
		mutated := ask(t, m["/mutate-pod"], admissionv1.Create, "someone", created, nil)
		warnings, refusals := mutated.Warnings, mutated.Result
		if mutated.Allowed {
			changed, _ := admission.Mutate(created)
			changed, _ = admission.Fence(changed, nil)
			validated := ask(t, m["/validate-pod"], admissionv1.Create, "someone", typed(changed), nil)
			warnings, refusals = append(warnings, validated.Warnings...), validated.Result
		}
		for object, field := range workloads(p) {
			var want []string
			if refusals != nil && refusals.Details != nil {
				for _, c := range refusals.Details.Causes {
					want = append(want, field+c.Field+": "+c.Message+"; its pods will be refused")
				}
			}
			for _, text := range warnings {
				want = append(want, field+text)
			}
			got := ask(t, m["/validate-workload"], admissionv1.Update, "someone", object, object)
			if diff := cmp.Diff(want, got.Warnings); diff != "" || !got.Allowed {
				t.Errorf("%s: %T: allowed %v, warnings (-want +got):\n%s", name, object, got.Allowed, diff)
			}
		}
	}
}

func TestAWorkloadIsWarnedOfItsProfilesAndItsQuota(t *testing.T) {
	t.Parallel()
	store := kube.NewQuotas(time.Now)
	store.PutQuota(typedQuota(t, "{name: parent, labels: {is-parent: 'true'}, max: {cpu: 1}}"))
	q := webhook.NewQuotas(store, func() bool { return true })
	profile, err := admission.NewProfile(&colocation.ClusterColocationProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "batch"},
		Spec: colocation.ClusterColocationProfileSpec{
			QoSClass: "LSR", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "batch"}},
		},
	})
	testkit.Check(t, err)
	m := mux{}
	webhook.Register(m, ctrl.NewDecoder(runtime.NewScheme()), webhook.Rules{
		Quotas: q, Kinds: func() device.Kinds { return nil },
		Profiles: func(string) ([]*admission.Profile, labels.Set, error) {
			odd := metav1.ObjectMeta{Name: "odd"}
			unusable := admission.Unusable(&colocation.ClusterColocationProfile{ObjectMeta: odd},
				io.EOF)
			return []*admission.Profile{profile, unusable}, nil, nil
		},
	}, webhook.NewMetrics())
	warned := func(p *corev1.Pod) string {
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template(p)}}
		return strings.Join(ask(t, m["/validate-workload"], admissionv1.Create, "someone", d, nil).Warnings, "\n")
	}
	named := pod(map[string]string{annotation.QuotaName: "parent"}, nil)
	if got, want := warned(named), "spec.template.metadata.labels[quota.scheduling.koordinator.sh/name]: pods of "+
		"namespace "; !strings.Contains(got, want) || !strings.Contains(got, "; its pods will be refused") {
		t.Errorf("of a quota without pods: %q, want %s…", got, want)
	}
	got := warned(pod(map[string]string{"app": "batch"}, nil))
	for _, want := range []string{
		"LSR Pod must declare the requested CPUs", "ClusterColocationProfile odd: has no effect",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("of profiles: %q, want %s", got, want)
		}
	}
	store.PutQuota(typedQuota(t, "{name: leaf, max: {cpu: 1}}"))
	queued := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": "q"},
	}}
	queued.Spec.Template = template(pod(map[string]string{annotation.QuotaName: "leaf"}, nil))
	answer := ask(t, m["/validate-workload"], admissionv1.Create, "someone", queued, nil)
	if got := strings.Join(answer.Warnings, "\n"); !strings.Contains(got, `in ElasticQuota "leaf"`) {
		t.Errorf("of a queue of Kueue and a quota: %q", got)
	}
	q.HasSynced = func() bool { return false }
	if got := warned(named); strings.Contains(got, "refused") {
		t.Errorf("before the quotas are read: %q", got)
	}
	if got := send(t, m["/validate-workload"], &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"spec":[]}`)},
	}); got.Allowed || got.Result.Code != 400 {
		t.Errorf("an object that is none: %+v", got)
	}
}

func TestWorkloadsAreAskedAboutWhereTheirPodsMayBe(t *testing.T) {
	t.Parallel()
	h := hooks(t)["validating/warn-of-keys.workloads.tenon.sh"]
	h.policy = new(admissionregistrationv1.Fail) // so that an expression that fails does
	keyed := pod(map[string]string{"koordinator.sh/foo": "x"}, nil)
	other := keyed.DeepCopy()
	other.Spec.SchedulerName = "volcano"
	extended := with("cpu", "koordinator.sh/gpu-core")
	inInit := with("cpu")
	inInit.Spec.InitContainers = extended.Spec.Containers
	limits := with("cpu")
	limits.Spec.Containers[0].Resources.Limits = extended.Spec.Containers[0].Resources.Requests
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"plain": {with("cpu"), false}, "of another scheduler": {other, false}, "a label": {keyed, true},
		"an annotation":        {pod(nil, map[string]string{"tenon.sh/foo": "x"}), true},
		"a gang":               {pod(map[string]string{"pod-group.scheduling.sigs.k8s.io": "x"}, nil), true},
		"a resource":           {extended, true},
		"of an init container": {inInit, true}, "a limit": {limits, true},
	} {
		for object := range workloads(c.pod) {
			if got := h.matches(t, object, nil); got != c.want {
				t.Errorf("%s: %T is asked about: %v, want %v", name, object, got, c.want)
			}
			if h.matches(t, object, object) {
				t.Errorf("%s: %T is asked about although its pods do not change", name, object)
			}
		}
	}
	owned := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template(keyed)}}
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "d"}}
	owned.Spec.Template.Spec.SchedulerName = "tenon-scheduler"
	if h.matches(t, owned, nil) {
		t.Error("the ReplicaSet of a Deployment is asked about")
	}
	for now := range workloads(keyed) {
		for was := range workloads(with("cpu")) {
			if reflect.TypeOf(now) == reflect.TypeOf(was) && !h.matches(t, now, was) {
				t.Errorf("%T is not asked about when its pods change", now)
			}
		}
	}
}

// TestAJobIsWarnedOfItsRunTime: its own annotations, and those of a CronJob's Jobs, are read for its pods.
func TestAJobIsWarnedOfItsRunTime(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	h := hooks(t)["validating/warn-of-keys.workloads.tenon.sh"]
	h.policy = new(admissionregistrationv1.Fail)
	const rule = `metadata.annotations[tenon.sh/expected-runtime]: byte 0: Invalid value "soon": must be a Go ` +
		`duration from 1s to 8760h, such as 90s, 1h30m or 48h; it has no effect`
	for _, text := range []string{"1h", "soon"} {
		own := metav1.ObjectMeta{Annotations: map[string]string{annotation.ExpectedRuntime: text}}
		template := template(with("cpu"))
		template.Spec.SchedulerName = "tenon-scheduler"
		spec := batchv1.JobSpec{Template: template}
		for kind, c := range map[string]struct {
			object runtime.Object
			at     string
		}{
			"Job": {&batchv1.Job{ObjectMeta: own, Spec: spec}, ""},
			"CronJob": {&batchv1.CronJob{Spec: batchv1.CronJobSpec{
				JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: own, Spec: spec},
			}}, "spec.jobTemplate."},
		} {
			raw, err := json.Marshal(c.object)
			testkit.Check(t, err)
			got := send(t, m["/validate-workload"], &admissionv1.AdmissionRequest{
				Operation: admissionv1.Create, Kind: metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: kind},
				Object: runtime.RawExtension{Raw: raw},
			})
			var want []string
			if text == "soon" {
				want = []string{c.at + rule}
			}
			if !got.Allowed || !slices.Equal(got.Warnings, want) {
				t.Errorf("%s with %s: warnings %q, want %q", kind, text, got.Warnings, want)
			}
			if !h.matches(t, c.object, nil) {
				t.Errorf("%s with a run time is not asked about", kind)
			}
		}
	}
}

// TestKeysOfAPodOfAnotherSchedulerAreWarnedAboutOnce: of the pod, and of whatever creates it.
func TestKeysOfAPodOfAnotherSchedulerAreWarnedAboutOnce(t *testing.T) {
	t.Parallel()
	m, _ := serve(t)
	asks := func(scheduler string, labelled, annotations map[string]string,
		resources ...corev1.ResourceName,
	) *corev1.Pod {
		p := with(resources...)
		p.Labels, p.Annotations, p.Spec.SchedulerName = labelled, annotations, scheduler
		return p
	}
	keys := func(k, v string) map[string]string { return map[string]string{k: v} }
	const set = ": set batch-scheduler for them to take effect"
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		before string // the path of the pod's fields is written as @
	}{
		"a plain pod": {
			asks("default-scheduler", keys("app", "web"), nil, "cpu", "nvidia.com/gpu"), "",
		},
		"keys of Tenon and its scheduler": {asks("batch-scheduler", keys(annotation.QoSClass, "LSR"), nil), ""},
		"what a simulated container runs": {asks("default-scheduler", nil, keys(annotation.SimulateKey, "{}")), ""},
		"a PodGroup of another scheduler": {asks("volcano", keys(annotation.CommunityPodGroup, "g"), nil), ""},
		"a similar domain":                {asks("volcano", keys("notkoordinator.sh/x", "g"), nil), ""},
		"a PodGroup that no scheduler reads": {
			asks("default-scheduler", keys(annotation.CommunityPodGroup, "g"), nil),
			`@spec.schedulerName: "default-scheduler" is not a scheduler of Tenon, so Tenon ignores ` +
				"@metadata.labels[" + annotation.CommunityPodGroup + "]" + set,
		},
		"a class, a gang and a share": {
			asks("volcano", keys(annotation.QoSClass, "LSR"), keys(annotation.GangName, "g"),
				"koordinator.sh/gpu-core"),
			`@spec.schedulerName: "volcano" is not a scheduler of Tenon, so Tenon ignores @metadata.annotations[` +
				annotation.GangName + "], @metadata.labels[koordinator.sh/qosClass], " +
				"@spec.containers[*].resources[koordinator.sh/gpu-core]" + set,
		},
		"more than three keys": {
			asks("", keys(annotation.QuotaName, "q"), keys(annotation.GangName, "g"), "kubernetes.io/batch-cpu",
				"kubernetes.io/batch-memory", "koordinator.sh/rdma"),
			`@spec.schedulerName: "default-scheduler" is not a scheduler of Tenon, so Tenon ignores ` +
				"@metadata.annotations[" + annotation.GangName + "], @metadata.labels[" + annotation.QuotaName +
				"], @spec.containers[*].resources[koordinator.sh/rdma], 2 more" + set,
		},
	} {
		objects := map[runtime.Object]string{typed(c.pod.DeepCopy()): ""}
		if c.pod.Spec.SchedulerName != "" {
			maps.Copy(objects, workloads(c.pod))
		}
		for object, path := range objects {
			var want []string
			if c.before != "" {
				want = []string{strings.ReplaceAll(c.before, "@", path)}
			}
			got := ask(t, m["/warn-scheduler"], admissionv1.Create, "someone", object, nil)
			if diff := cmp.Diff(want, got.Warnings); diff != "" || !got.Allowed || got.Patch != nil {
				t.Errorf("%s: %T: %+v, warnings (-want +got):\n%s", name, object, got, diff)
			}
			h := hooks(t)["validating/warn-of-scheduler.pods.tenon.sh"]
			if c.pod.Spec.SchedulerName == "batch-scheduler" {
				continue // the manifests serve others
			}
			h.policy = new(admissionregistrationv1.Fail) // so that an expression that fails does
			asked := c.before != "" || strings.HasPrefix(name, "a PodGroup")
			if got := h.matches(t, object, nil); got != asked {
				t.Errorf("%s: %T is asked about: %v, want %v", name, object, got, asked)
			}
		}
	}
	owned := asks("volcano", keys(annotation.QoSClass, "LSR"), nil)
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r"}}
	h := hooks(t)["validating/warn-of-scheduler.pods.tenon.sh"]
	if h.matches(t, owned, nil) {
		t.Error("a pod of a ReplicaSet is asked about")
	}
	for object := range workloads(asks("volcano", keys(annotation.QoSClass, "LSR"), nil)) {
		if h.matches(t, object, object) {
			t.Errorf("%T is asked about although its pods do not change", object)
		}
	}
	if got := send(t, m["/warn-scheduler"], &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(`{"spec":[]}`)},
	}); got.Allowed || got.Result.Code != 400 {
		t.Errorf("an object that is none: %+v", got)
	}
}

// TestANamespaceThatSchedulesDevicesIsNotWarnedAboutThem: its pods with devices become Tenon's.
func TestANamespaceThatSchedulesDevicesIsNotWarnedAboutThem(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"enabled": 0, "": 1} {
		m := mux{}
		webhook.Register(m, ctrl.NewDecoder(runtime.NewScheme()), webhook.Rules{
			SchedulerName: "tenon-scheduler", Kinds: func() device.Kinds { return nil },
			Profiles: func(string) ([]*admission.Profile, labels.Set, error) {
				return nil, labels.Set{annotation.DeviceSchedulingLabel: value}, nil
			},
		}, webhook.NewMetrics())
		share := with("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")
		d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template(share)}}
		got := ask(t, m["/warn-scheduler"], admissionv1.Create, "someone", d, nil).Warnings
		if len(got) != want {
			t.Errorf("with the value %q: %q, want %d warnings", value, got, want)
		}
	}
}

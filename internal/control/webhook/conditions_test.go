package webhook_test

import (
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	migration "github.com/tenon-project/tenon/api/migration/v1alpha1"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/testkit"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// hook is a webhook of the manifests, whatever its kind.
type hook struct {
	kind       string
	name       string
	policy     *admissionregistrationv1.FailurePolicyType
	timeout    *int32
	namespaces *metav1.LabelSelector
	rules      []admissionregistrationv1.RuleWithOperations
	conditions []admissionregistrationv1.MatchCondition
	client     admissionregistrationv1.WebhookClientConfig
}

// hooks reads the manifests strictly.
func hooks(t *testing.T) map[string]hook {
	t.Helper()
	all := map[string]hook{}
	for _, doc := range deploy.Webhooks() {
		var kind metav1.TypeMeta
		testkit.Check(t, yaml.Unmarshal(doc, &kind))
		if kind.Kind == "MutatingWebhookConfiguration" {
			var c admissionregistrationv1.MutatingWebhookConfiguration
			testkit.Check(t, yaml.UnmarshalStrict(doc, &c))
			for _, w := range c.Webhooks {
				all["mutating/"+w.Name] = hook{
					"mutating", w.Name, w.FailurePolicy, w.TimeoutSeconds,
					w.NamespaceSelector, w.Rules, w.MatchConditions, w.ClientConfig,
				}
			}
			continue
		}
		var c admissionregistrationv1.ValidatingWebhookConfiguration
		testkit.Check(t, yaml.UnmarshalStrict(doc, &c))
		for _, w := range c.Webhooks {
			all["validating/"+w.Name] = hook{
				"validating", w.Name, w.FailurePolicy, w.TimeoutSeconds,
				w.NamespaceSelector, w.Rules, w.MatchConditions, w.ClientConfig,
			}
		}
	}
	return all
}

// matches evaluates a webhook's conditions as the API server does. old may be nil.
func (h hook) matches(t *testing.T, object, old runtime.Object) bool {
	t.Helper()
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	var expressions []cel.ExpressionAccessor
	for _, c := range h.conditions {
		expressions = append(expressions, &matchconditions.MatchCondition{Name: c.Name, Expression: c.Expression})
	}
	evaluator := compiler.CompileCondition(expressions, cel.OptionalVariableDeclarations{HasAuthorizer: true},
		environment.NewExpressions)
	matcher := matchconditions.NewMatcher(evaluator, h.policy, "webhook", h.kind, h.name)

	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	gvk, gvr := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	if _, ok := object.(*corev1.Node); ok {
		gvk, gvr = corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithResource("nodes")
	}
	attributes := admission.NewAttributesRecord(object, old, gvk, "default", "p", gvr, "", operation, nil, false, nil)
	result := matcher.Match(t.Context(), &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: gvk,
		VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(old),
	}, nil, nil)
	if result.Error != nil {
		t.Fatalf("conditions of %s: %v", h.name, result.Error)
	}
	return result.Matches
}

func pod(labelled, annotations map[string]string) *corev1.Pod {
	p := testobject.Pod("p", testobject.Container("c", ""))
	p.Labels, p.Annotations = labelled, annotations
	return p
}

// owned is a pod that an object of a kind controls.
func owned(apiVersion, kind string) *corev1.Pod {
	p := pod(nil, nil)
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: apiVersion, Kind: kind, Name: "o", Controller: ptr.To(true)},
	}
	return p
}

func elasticQuota(labelled, annotations map[string]string, ceiling string) *v1alpha1.ElasticQuota {
	return &v1alpha1.ElasticQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "q", Labels: labelled, Annotations: annotations},
		Spec:       v1alpha1.ElasticQuotaSpec{Max: testobject.List("cpu", ceiling)},
	}
}

func with(names ...corev1.ResourceName) *corev1.Pod {
	p := pod(nil, nil)
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
	for _, name := range names {
		p.Spec.Containers[0].Resources.Requests[name] = resource.MustParse("1")
	}
	return p
}

func TestConditionsAskOnlyAboutPodsThatUseTenon(t *testing.T) {
	t.Parallel()
	keys := func(k, v string) map[string]string { return map[string]string{k: v} }
	status := keys(annotation.ResourceStatusKey, "{}")
	lsr := keys(annotation.QoSClass, "LSR")
	volcano := keys(annotation.VolcanoTopologyPolicy, "restricted")
	batchInit := pod(nil, nil)
	batchInit.Spec.InitContainers = with("kubernetes.io/batch-cpu").Spec.Containers
	gpuInit := pod(nil, nil)
	gpuInit.Spec.InitContainers = with("kubernetes.io/gpu-memory").Spec.Containers
	node := func(l map[string]string) *corev1.Node { return testobject.Node("n", l) }
	member := owned("ray.io/v1", "RayCluster")
	member.Labels = keys(annotation.CommunityPodGroup, "g")
	const setGang, setRunTime = "mutating/set-gang.pods.tenon.sh", "mutating/set-runtime.pods.tenon.sh"
	declares := owned("batch/v1", "Job")
	declares.Annotations = keys(annotation.ExpectedRuntime, "1h")
	named := with("nvidia.com/gpu")
	named.Spec.SchedulerName = "volcano"
	tests := map[string]struct {
		hook        string
		object, old runtime.Object
		want        bool
	}{
		"gang: a bare pod":           {setGang, pod(nil, nil), nil, false},
		"gang: a pod of an operator": {setGang, owned("ray.io/v1", "RayCluster"), nil, true},
		"gang: it is required": {
			"mutating/require-gang.pods.tenon.sh", owned("batch/v1", "Job"), nil, true,
		},
		"gang: a pod of a ReplicaSet":   {setGang, owned("apps/v1", "ReplicaSet"), nil, false},
		"gang: a pod that names a gang": {setGang, member, nil, false},
		"run time: a bare pod":          {setRunTime, pod(nil, nil), nil, false},
		"run time: a pod of a Job":      {setRunTime, owned("batch/v1", "Job"), nil, true},
		"run time: a pod of another Job": {
			setRunTime, owned("batch.volcano.sh/v1alpha1", "Job"), nil, false,
		},
		"run time: it is declared": {setRunTime, declares, nil, false},
		"scheduler: a bare pod":    {"mutating/set-scheduler.pods.tenon.sh", pod(nil, nil), nil, false},
		"scheduler: a whole GPU":   {"mutating/set-scheduler.pods.tenon.sh", with("nvidia.com/gpu"), nil, true},
		"scheduler: a slice": {
			"mutating/set-scheduler.pods.tenon.sh", with("nvidia.com/mig-1g.5gb"), nil, true,
		},
		"scheduler: an adapter": {
			"mutating/set-scheduler.pods.tenon.sh", with("koordinator.sh/rdma"), nil, true,
		},
		"scheduler: a type of its own": {"mutating/set-scheduler.pods.tenon.sh", with("example.com/dpu"), nil, true},
		"scheduler: batch amounts": {
			"mutating/set-scheduler.pods.tenon.sh", with("kubernetes.io/batch-cpu"), nil, false,
		},
		"types: a bare pod": {
			"mutating/set-device-defaults.pods.tenon.sh", with("cpu", "hugepages-2Mi"), nil, false,
		},
		"types: a type of its own": {"mutating/set-device-defaults.pods.tenon.sh", with("example.com/dpu"), nil, true},
		"types: one of ours": {
			"validating/validate-devices.pods.tenon.sh", with("koordinator.sh/dpu"), nil, true,
		},
		"types: a whole GPU": {"validating/validate-devices.pods.tenon.sh", with("amd.com/gpu"), nil, false},
		"types: a slice": {
			"mutating/set-device-defaults.pods.tenon.sh", with("nvidia.com/mig-1g.5gb"), nil, false,
		},
		"types: a share": {
			"validating/validate-devices.pods.tenon.sh", with("koordinator.sh/gpu-core"), nil, false,
		},
		"types: an adapter": {
			"mutating/set-device-defaults.pods.tenon.sh", with("koordinator.sh/rdma"), nil, false,
		},
		"scheduler: an init container":    {"mutating/set-scheduler.pods.tenon.sh", gpuInit, nil, true},
		"scheduler: a pod of another one": {"mutating/set-scheduler.pods.tenon.sh", named, nil, false},
		"create: a bare pod":              {"validating/validate-new.pods.tenon.sh", pod(nil, nil), nil, false},
		"create: a pod of someone else": {
			"validating/validate-new.pods.tenon.sh",
			pod(keys("app", "web"), keys("example.com/x", "y")), nil, false,
		},
		"create: a pod with plain amounts": {"validating/validate-new.pods.tenon.sh", with("cpu"), nil, false},
		"create: a pod with a class":       {"validating/validate-new.pods.tenon.sh", pod(lsr, nil), nil, true},
		"create: a pod with wishes": {
			"validating/validate-new.pods.tenon.sh",
			pod(nil, keys(annotation.ResourceSpecKey, "{}")), nil, true,
		},
		"create: a pod to be simulated": {
			"validating/validate-new.pods.tenon.sh",
			pod(nil, keys(annotation.SimulateKey, "{}")), nil, true,
		},
		"create: a pod with batch amounts": {
			"validating/validate-new.pods.tenon.sh", with("kubernetes.io/batch-cpu"),
			nil, true,
		},
		"warn: a bare pod": {"validating/warn-of-keys.pods.tenon.sh", pod(nil, nil), nil, false},
		"warn: a pod of someone else": {
			"validating/warn-of-keys.pods.tenon.sh",
			pod(keys("app", "web"), keys("example.com/x", "y")), nil, false,
		},
		"warn: a pod with plain amounts": {"validating/warn-of-keys.pods.tenon.sh", with("cpu"), nil, false},
		"warn: a member of a gang": {
			"validating/warn-of-keys.pods.tenon.sh",
			pod(nil, keys("gang.scheduling.koordinator.sh/name", "g")), nil, true,
		},
		"warn: a pod of a quota": {
			"validating/warn-of-keys.pods.tenon.sh",
			pod(keys("quota.scheduling.koordinator.sh/name", "q"), nil), nil, true,
		},
		"warn: a misspelt domain": {
			"validating/warn-of-keys.pods.tenon.sh",
			pod(keys("koordiantor.sh/qosClass", "LSR"), nil), nil, true,
		},
		"warn: a pod of a queue of Volcano": {
			"validating/warn-of-keys.pods.tenon.sh",
			pod(nil, keys("scheduling.volcano.sh/queue-name", "q")), nil, true,
		},
		"warn: a pod with a part of a GPU": {
			"validating/warn-of-keys.pods.tenon.sh", with("koordinator.sh/gpu-core"), nil,
			true,
		},
		"create: a pod with a whole GPU": {"validating/validate-new.pods.tenon.sh", with("nvidia.com/gpu"), nil, false},
		"mutate: a pod with a whole GPU": {"mutating/set-defaults.pods.tenon.sh", with("nvidia.com/gpu"), nil, false},
		"create: a pod with a slice": {
			"validating/validate-new.pods.tenon.sh", with("nvidia.com/mig-1g.5gb"), nil, false,
		},
		"create: a pod with GPUs of two vendors": {
			"validating/validate-new.pods.tenon.sh", with("nvidia.com/gpu", "amd.com/gpu"), nil, true,
		},
		"create: a pod with a whole GPU and a slice": {
			"validating/validate-new.pods.tenon.sh", with("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"), nil, true,
		},
		"create: a pod with a part of a GPU": {
			"validating/validate-new.pods.tenon.sh", with("koordinator.sh/gpu-core"), nil, true,
		},
		"mutate: a pod with a part of a GPU": {
			"mutating/set-defaults.pods.tenon.sh", with("koordinator.sh/gpu-core"), nil, true,
		},
		"create: a pod with an alias": {
			"validating/validate-new.pods.tenon.sh", with("kubernetes.io/gpu"), nil, true,
		},
		"mutate: a pod with an alias": {
			"mutating/set-defaults.pods.tenon.sh", with("kubernetes.io/gpu"), nil, true,
		},
		"mutate: an init container with one": {"mutating/set-defaults.pods.tenon.sh", gpuInit, nil, true},
		"create: an init container with a part of a GPU": {
			"validating/validate-new.pods.tenon.sh", gpuInit, nil, true,
		},
		"create: a pod with an adapter": {
			"validating/validate-new.pods.tenon.sh", with("koordinator.sh/rdma"), nil, true,
		},
		"mutate: a pod with an adapter": {"mutating/set-defaults.pods.tenon.sh", with("kubernetes.io/rdma"), nil, true},
		"create: a pod with a template": {
			"validating/validate-new.pods.tenon.sh", with("huawei.com/npu-core"), nil, true,
		},
		"mutate: a pod with batch amounts": {
			"mutating/set-defaults.pods.tenon.sh", with("kubernetes.io/batch-cpu"), nil, false,
		},
		"mutate: a pod with a hint": {
			"mutating/set-defaults.pods.tenon.sh", pod(nil, keys(annotation.DeviceAllocateHintKey, "{}")), nil, true,
		},
		"node: usage thresholds": {
			"validating/warn-of-keys.nodes.tenon.sh",
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: keys("scheduling.koordinator.sh/usage-thresholds",
				"{}")}}, nil, true,
		},
		"create: an init container with them": {"validating/validate-new.pods.tenon.sh", batchInit, nil, true},
		"mutate: a pod that may hold CPUs": {
			"mutating/set-defaults.pods.tenon.sh",
			pod(keys(annotation.QoSClass, "lse"), nil), nil, true,
		},
		"mutate: a pod that never holds CPUs": {
			"mutating/set-defaults.pods.tenon.sh",
			pod(keys(annotation.QoSClass, "LS"), nil), nil, false,
		},
		"mutate: labels of someone else": {
			"mutating/set-defaults.pods.tenon.sh", pod(keys("a", "LSE"), nil), nil,
			false,
		},
		"create: a pod of Volcano": {"validating/validate-new.pods.tenon.sh", pod(nil, volcano), nil, true},
		"mutate: a pod of Volcano": {"mutating/set-defaults.pods.tenon.sh", pod(nil, volcano), nil, true},
		"mutate: a pod with a prediction": {
			"mutating/set-defaults.pods.tenon.sh",
			pod(nil, keys("tenon.sh/predicted-placement", "{}")), nil, true,
		},
		"update: Volcano's policy appears": {
			"validating/validate-update.pods.tenon.sh", pod(nil, volcano), pod(nil, nil),
			true,
		},
		"update: Volcano's policy goes": {
			"validating/validate-update.pods.tenon.sh", pod(nil, nil), pod(nil, volcano),
			true,
		},
		"mutate: a bare pod":               {"mutating/set-defaults.pods.tenon.sh", pod(nil, nil), nil, false},
		"mutate: a pod with an allocation": {"mutating/set-defaults.pods.tenon.sh", pod(lsr, status), nil, true},
		"mutate: a pod with a bind key": {
			"mutating/set-defaults.pods.tenon.sh",
			pod(nil, keys("scheduling.koordinator.sh/bind-x", "")), nil, true,
		},
		"update: nothing of metadata": {
			"validating/validate-update.pods.tenon.sh", pod(lsr, status), pod(lsr, status),
			false,
		},
		"update: a label of someone else": {
			"validating/validate-update.pods.tenon.sh", pod(keys("app", "a"), nil),
			pod(keys("app", "b"), nil), false,
		},
		"update: a class appears": {
			"validating/validate-update.pods.tenon.sh", pod(lsr, nil), pod(nil, nil),
			true,
		},
		"update: a class goes": {
			"validating/validate-update.pods.tenon.sh", pod(nil, nil), pod(lsr, nil),
			true,
		},
		"update: an allocation appears": {
			"validating/validate-update.pods.tenon.sh", pod(nil, status), pod(nil, nil),
			true,
		},
		"update: an allocation goes": {
			"validating/validate-update.pods.tenon.sh", pod(nil, nil), pod(nil, status),
			true,
		},
		"update: an allocation changes": {
			"validating/validate-update.pods.tenon.sh", pod(nil, status),
			pod(nil, keys(annotation.ResourceStatusKey, "")), true,
		},
		"update: a class changes": {
			"validating/validate-update.pods.tenon.sh",
			pod(keys(annotation.QoSClass, "LS"), nil), pod(lsr, nil), true,
		},
		"update: a sub-priority appears": {
			"validating/validate-update.pods.tenon.sh",
			pod(keys(annotation.Priority, "1"), nil), pod(nil, nil), true,
		},
		"update: another's label on an LSR pod": {
			"validating/validate-update.pods.tenon.sh", pod(lsr, keys("a", "b")),
			pod(lsr, nil), false,
		},
		"resize: a pod without class": {
			"validating/validate-resize.pods.tenon.sh", pod(nil, nil), pod(nil, nil),
			false,
		},
		"resize: a pod without class, which a quota may count": {
			"validating/validate-resize-of-plain.pods.tenon.sh", pod(nil, nil), pod(nil, nil), true,
		},
		"resize: a pod with CPUs, once": {
			"validating/validate-resize-of-plain.pods.tenon.sh", pod(nil, status), pod(nil, status), false,
		},
		"resize: a pod that names a quota, once": {
			"validating/validate-resize-of-plain.pods.tenon.sh", pod(keys(annotation.QuotaName, "q"), nil),
			pod(keys(annotation.QuotaName, "q"), nil), false,
		},
		"resize: a pod with a class": {
			"validating/validate-resize.pods.tenon.sh", pod(lsr, nil), pod(lsr, nil),
			true,
		},
		"resize: a pod with CPUs": {
			"validating/validate-resize.pods.tenon.sh", pod(nil, status), pod(nil, status),
			true,
		},
		"resize: a pod that names a quota": {
			"validating/validate-resize.pods.tenon.sh", pod(keys(annotation.QuotaName, "q"), nil),
			pod(keys(annotation.QuotaName, "q"), nil), true,
		},
		"create: a pod that names a quota": {
			"validating/validate-new.pods.tenon.sh", pod(keys(annotation.QuotaName, "q"), nil), nil, true,
		},
		"create: a pod that is not preemptible": {
			"validating/validate-new.pods.tenon.sh", pod(keys(annotation.QuotaPreemptible, "false"), nil), nil, true,
		},
		"create: a pod with the label of a quota's tree": {
			"validating/validate-new.pods.tenon.sh", pod(keys(annotation.QuotaTreeID, "t"), nil), nil, false,
		},
		"update: a pod moves to another quota": {
			"validating/validate-update.pods.tenon.sh", pod(keys(annotation.QuotaName, "q"), nil),
			pod(keys(annotation.QuotaName, "r"), nil), true,
		},
		"update: a pod is no longer preemptible": {
			"validating/validate-update.pods.tenon.sh",
			pod(keys(annotation.QuotaPreemptible, "false"), nil), pod(nil, nil),
			true,
		},
		"update: another's label on a pod of a quota": {
			"validating/validate-update.pods.tenon.sh",
			pod(map[string]string{annotation.QuotaName: "q", "a": "b"}, nil),
			pod(keys(annotation.QuotaName, "q"), nil), false,
		},
		"quota: created": {
			"validating/validate.elasticquotas.tenon.sh", elasticQuota(nil, nil, "1"), nil, true,
		},
		"quota: nothing changes": {
			"validating/validate.elasticquotas.tenon.sh",
			elasticQuota(nil, nil, "1"), elasticQuota(nil, nil, "1"), false,
		},
		"quota: max changes": {
			"validating/validate.elasticquotas.tenon.sh",
			elasticQuota(nil, nil, "1"), elasticQuota(nil, nil, "2"), true,
		},
		"quota: a label appears": {
			"validating/validate.elasticquotas.tenon.sh", elasticQuota(keys(annotation.QuotaParent, "p"), nil, "1"),
			elasticQuota(nil, nil, "1"), true,
		},
		"quota: a weight goes": {
			"validating/validate.elasticquotas.tenon.sh", elasticQuota(nil, nil, "1"),
			elasticQuota(nil, keys(annotation.QuotaSharedWeight, "{}"), "1"), true,
		},
		"quota: the scheduler writes its runtime": {
			"validating/validate.elasticquotas.tenon.sh", elasticQuota(nil, keys(annotation.QuotaRuntime, "{}"), "1"),
			elasticQuota(nil, nil, "1"), false,
		},
		"quota: a child without a tree": {
			"mutating/set-tree.elasticquotas.tenon.sh", elasticQuota(keys(annotation.QuotaParent, "p"), nil, "1"),
			nil, true,
		},
		"quota: a child with a tree": {
			"mutating/set-tree.elasticquotas.tenon.sh",
			elasticQuota(map[string]string{annotation.QuotaParent: "p", annotation.QuotaTreeID: "t"}, nil, "1"),
			nil, false,
		},
		"quota: a top": {
			"mutating/set-tree.elasticquotas.tenon.sh", elasticQuota(nil, nil, "1"), nil,
			false,
		},
		"node: one without policies": {"validating/warn-of-keys.nodes.tenon.sh", node(keys("a", "b")), nil, false},
		"node: one with a policy registers": {
			"validating/warn-of-keys.nodes.tenon.sh",
			node(keys(annotation.NodeCPUBindPolicy, "x")), nil, true,
		},
		"node: the misprinted key": {
			"validating/warn-of-keys.nodes.tenon.sh",
			node(keys(annotation.NodeCPUBindPolicyAlias, "x")), nil, true,
		},
		"node: its heartbeat": {
			"validating/warn-of-keys.nodes.tenon.sh",
			node(keys(annotation.NodeCPUBindPolicy, "x")), node(keys(annotation.NodeCPUBindPolicy, "x")), false,
		},
		"node: another's label changes": {
			"validating/warn-of-keys.nodes.tenon.sh",
			node(map[string]string{annotation.NodeCPUBindPolicy: "x", "a": "b"}),
			node(keys(annotation.NodeCPUBindPolicy, "x")), false,
		},
		"PodGroup: it is created": {"validating/validate.podgroups.tenon.sh", podGroup("", 1, ""), nil, true},
		"PodGroup: its status changes": {
			"validating/validate.podgroups.tenon.sh", podGroup("", 1, "Running"), podGroup("", 1, ""), false,
		},
		"PodGroup: its minimum changes": {
			"validating/validate.podgroups.tenon.sh", podGroup("", 2, ""), podGroup("", 1, ""), true,
		},
		"PodGroup: its mode changes": {
			"validating/validate.podgroups.tenon.sh", podGroup("Strict", 1, ""), podGroup("", 1, ""), true,
		},
		"Reservation: it is created": {
			"validating/validate.reservations.tenon.sh", reservationOf(false, ""), nil, true,
		},
		"Reservation: its status changes": {
			"validating/validate.reservations.tenon.sh",
			reservationOf(false, "Available"), reservationOf(false, ""), false,
		},
		"Reservation: its spec changes": {
			"validating/validate.reservations.tenon.sh", reservationOf(true, ""), reservationOf(false, ""), true,
		},
		"PodMigrationJob: it is created": {
			"validating/validate.podmigrationjobs.tenon.sh", migrationOf(false, ""), nil, true,
		},
		"PodMigrationJob: its status changes": {
			"validating/validate.podmigrationjobs.tenon.sh",
			migrationOf(false, "Running"), migrationOf(false, ""), false,
		},
		"PodMigrationJob: its spec changes": {
			"validating/validate.podmigrationjobs.tenon.sh", migrationOf(true, ""), migrationOf(false, ""), true,
		},
		"node: a policy goes": {
			"validating/warn-of-keys.nodes.tenon.sh", node(nil),
			node(keys(annotation.NodeCPUBindPolicy, "x")), false,
		},
		"node: a policy changes": {
			"validating/warn-of-keys.nodes.tenon.sh",
			node(keys(annotation.NodeCPUBindPolicy, "x")), node(keys(annotation.NodeCPUBindPolicy, "None")), true,
		},
	}
	all := hooks(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, ok := all[tt.hook]
			if !ok {
				t.Fatalf("no webhook %s", tt.hook)
			}
			if p, ok := tt.object.(*corev1.Pod); ok && h.name != "set-scheduler.pods.tenon.sh" {
				p = p.DeepCopy()
				p.Spec.SchedulerName = "tenon-scheduler"
				tt.object = p
			}
			if got := h.matches(t, tt.object, tt.old); got != tt.want {
				t.Errorf("asked = %v, want %v", got, tt.want)
			}
		})
	}
}

// TestPodsOfOtherSchedulersWaitForNoWebhook: whatever keys they have, the API server calls one webhook about them,
// which only warns.
func TestPodsOfOtherSchedulersWaitForNoWebhook(t *testing.T) {
	t.Parallel()
	labelled, annotated := map[string]string{}, map[string]string{}
	for _, s := range annotation.Supports() {
		into := map[annotation.Place]map[string]string{
			annotation.PodLabel: labelled, annotation.PodAnnotation: annotated,
		}[s.Place]
		for _, key := range s.Keys {
			if into != nil {
				into[strings.ReplaceAll(key, "*", "x")] = "LSE"
			}
		}
	}
	asking := with("cpu", "koordinator.sh/gpu-core", "kubernetes.io/gpu", "koordinator.sh/rdma",
		"kubernetes.io/batch-cpu", "nvidia.com/gpu", "amd.com/gpu", "example.com/dpu").Spec
	for name, h := range hooks(t) {
		if !slices.ContainsFunc(h.rules[0].Resources, func(r string) bool {
			return strings.HasPrefix(r, "pods") && r != "pods/binding"
		}) || h.name == "warn-of-scheduler.pods.tenon.sh" {
			continue
		}
		for scheduler, want := range map[string]bool{
			"volcano": false, "yunikorn": false, "my-own-scheduler": false, "": false, "koord-scheduler": true,
			"tenon-scheduler": true,
		} {
			all := pod(labelled, annotated)
			asking.DeepCopyInto(&all.Spec)
			all.Spec.SchedulerName = scheduler
			bare := pod(nil, nil)
			bare.Spec.SchedulerName = scheduler
			var old runtime.Object
			switch h.rules[0].Operations[0] {
			case admissionregistrationv1.Update:
				old = bare
				switch h.name {
				case "validate-resize.pods.tenon.sh":
					old = all
				case "validate-resize-of-plain.pods.tenon.sh":
					all = bare
				}
			default:
				switch h.name {
				case "set-scheduler.pods.tenon.sh":
					want = scheduler == "" // in namespaces that ask for it
				case "set-gang.pods.tenon.sh", "require-gang.pods.tenon.sh":
					all = owned("ray.io/v1", "RayCluster") // that names no gang
					all.Spec.SchedulerName = scheduler
				case "set-runtime.pods.tenon.sh":
					all = owned("batch/v1", "Job")
					all.Spec.SchedulerName = scheduler
				}
			}
			if got := h.matches(t, all, old); got != want {
				t.Errorf("%s is asked about a pod of %q = %v, want %v", name, scheduler, got, want)
			}
		}
	}
}

func reservationOf(unschedulable bool, phase reservation.ReservationPhase) *reservation.Reservation {
	r := &reservation.Reservation{}
	r.Spec.Unschedulable, r.Status.Phase = unschedulable, phase
	return r
}

func migrationOf(paused bool, phase migration.PodMigrationJobPhase) *migration.PodMigrationJob {
	j := &migration.PodMigrationJob{}
	j.Spec.Paused, j.Status.Phase = paused, phase
	return j
}

func podGroup(mode string, least int32, phase v1alpha1.PodGroupPhase) *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{Spec: v1alpha1.PodGroupSpec{MinMember: least}}
	if mode != "" {
		g.Annotations = map[string]string{annotation.GangMode: mode}
	}
	g.Status.Phase = phase
	return g
}

func TestConfigurationsKeepTheClusterAlive(t *testing.T) {
	t.Parallel()
	for name, h := range hooks(t) {
		if h.timeout == nil || *h.timeout > 5 {
			t.Errorf("%s: timeoutSeconds = %v, want at most 5", name, h.timeout)
		}
		if len(h.conditions) == 0 {
			t.Errorf("%s has no matchConditions", name)
		}
		if h.client.Service == nil || h.client.Service.Path == nil {
			t.Errorf("%s names no service path", name)
		}
		if h.rules[0].Resources[0] == "nodes" {
			if *h.policy != admissionregistrationv1.Ignore {
				t.Errorf("%s: failurePolicy = %s: a node could not register", name, *h.policy)
			}
			continue
		}
		want := admissionregistrationv1.Fail
		// No pod and no workload waits for a warning, and the scheduler holds what it cannot read, and checks devices
		// itself.
		switch name {
		case "validating/warn-of-scheduler.pods.tenon.sh", "validating/warn-of-keys.pods.tenon.sh",
			"validating/warn-of-keys.workloads.tenon.sh",
			"validating/validate.podgroups.tenon.sh", "validating/validate-devices.pods.tenon.sh",
			"mutating/set-device-defaults.pods.tenon.sh", "mutating/set-gang.pods.tenon.sh",
			"mutating/set-runtime.pods.tenon.sh",
			"validating/validate.reservations.tenon.sh",
			"validating/validate.podmigrationjobs.tenon.sh",
			// Profiles match plain pods, too, and of one that cannot be read their creators are warned.
			"mutating/apply-profiles.pods.tenon.sh", "validating/validate.clustercolocationprofiles.tenon.sh",
			"validating/validate-resize-of-plain.pods.tenon.sh":
			want = admissionregistrationv1.Ignore
		}
		if *h.policy != want {
			t.Errorf("%s: failurePolicy = %s, want %s", name, *h.policy, want)
		}
		selector, err := metav1.LabelSelectorAsSelector(h.namespaces)
		testkit.Check(t, err)
		creates := h.rules[0].Operations[0] == admissionregistrationv1.Create &&
			slices.Contains([]string{"pods", "deployments"}, h.rules[0].Resources[0])
		asked := map[string]bool{"default": true, "kube-system": !creates, "tenon-system": !creates}
		switch name { // a namespace asks for these
		case "mutating/require-gang.pods.tenon.sh":
			asked["default"] = false
			if !selector.Matches(labels.Set{annotation.GangsLabel: annotation.GangsRequired}) {
				t.Errorf("%s: a namespace that asks for it is not asked about", name)
			}
		case "validating/refuse-foreign-bindings.tenon.sh", "mutating/set-scheduler.pods.tenon.sh":
			asked = map[string]bool{"default": false, "kube-system": false, "tenon-system": false}
			if !selector.Matches(labels.Set{annotation.DeviceSchedulingLabel: "enabled"}) {
				t.Errorf("%s: a namespace that asks for it is not asked about", name)
			}
		}
		for ns, want := range asked {
			if got := selector.Matches(labels.Set{"kubernetes.io/metadata.name": ns}); got != want {
				t.Errorf("%s: namespace %s is asked about = %v, want %v", name, ns, got, want)
			}
		}
	}
}

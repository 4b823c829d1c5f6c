package nodenumaresource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

func TestHintsWakeAPodOnlyForANodeThatWouldTakeIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	roomy := f.addNode("roomy", machine(t, "amd64", 2, 4, 2)).Node()
	full := f.addNode("full", machine(t, "amd64", 2, 4, 2)).Node()
	bare := f.addNode("bare", nil).Node()
	f.store.PutPod(lsr("holder", 12, bound("full", "0-5,8-13")))
	pod := lsr("p", 4, func(p *corev1.Pod) {
		selector := &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "pool", Operator: corev1.NodeSelectorOpDoesNotExist},
			}}},
		}
		p.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector},
		}
	})
	nrt := func(name string) *v1alpha2.NodeResourceTopology {
		n := &v1alpha2.NodeResourceTopology{}
		n.Name = name
		return n
	}
	pinned := nrt("roomy")
	pinned.Annotations = map[string]string{annotation.PodCPUAllocsKey: `[{"namespace":"a","name":"b","uid":"c",` +
		`"cpuset":"0","managedByKubelet":true}]`}
	f.addNode("barred", machine(t, "amd64", 2, 4, 2), labelled("pool", "other"))
	gone := func(node string) *corev1.Pod { return lsr("gone", 2, bound(node, "0,8")) }
	edited := lsr("p", 4, spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`))
	refused := pod.DeepCopy()
	refused.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	smaller := lsr("other", 2, bound("roomy", "0"))
	nominated := lsr("nominated", 2)
	nominated.Status.NominatedNodeName = "roomy"
	afterNode, afterTopology, afterPod := f.after(t, fwk.Node), f.after(t, topologies), f.after(t, fwk.Pod)
	afterDevice := f.after(t, devices)
	device := func(node string, health bool) *devicev1alpha1.Device {
		d := &devicev1alpha1.Device{}
		d.Name, d.Spec.Devices = node, []devicev1alpha1.DeviceInfo{{Type: "gpu", ID: "GPU-0", Health: health}}
		return d
	}
	counted := device("roomy", true)
	counted.Status.Allocations = []devicev1alpha1.DeviceAllocation{{Type: "gpu"}}
	given := lsr("other", 2, bound("roomy", "0,8"))
	given.Annotations[annotation.DeviceAllocatedKey] = `{"gpu":[{"id":"GPU-0","resources":{}}]}`
	// What it waits for on its nominated node is gone. The node does not take it, so its nomination has to end.
	awaits := f.after(t, fwk.Pod)
	afterAwaited := func(log klog.Logger, pod *corev1.Pod, old, obj any) (fwk.QueueingHint, error) {
		pod = pod.DeepCopy()
		pod.Status.NominatedNodeName = "full"
		return awaits(log, pod, old, obj)
	}
	tests := map[string]struct {
		hint     func(klog.Logger, *corev1.Pod, any, any) (fwk.QueueingHint, error)
		old, obj any
		want     fwk.QueueingHint
	}{
		"a node with room appears":           {afterNode, nil, roomy, fwk.Queue},
		"a full node appears":                {afterNode, nil, full, fwk.QueueSkip},
		"a node without topology appears":    {afterNode, nil, bare, fwk.QueueSkip},
		"the topology of a node with room":   {afterTopology, nil, nrt("roomy"), fwk.Queue},
		"the topology of a full node":        {afterTopology, nrt("full"), nrt("full"), fwk.QueueSkip},
		"a topology that says nothing new":   {afterTopology, nrt("roomy"), nrt("roomy"), fwk.QueueSkip},
		"a topology that says something new": {afterTopology, nrt("roomy"), pinned, fwk.Queue},
		"the devices of a node with room":    {afterDevice, nil, device("roomy", true), fwk.Queue},
		"a device that works again":          {afterDevice, device("roomy", false), device("roomy", true), fwk.Queue},
		"devices of which the status changes": {
			afterDevice, device("roomy", true), counted, fwk.QueueSkip,
		},
		"the devices of a full node":         {afterDevice, nil, device("full", true), fwk.QueueSkip},
		"the devices of a node with room go": {afterDevice, device("roomy", true), nil, fwk.Queue},
		"the devices of a full node go":      {afterDevice, device("full", true), nil, fwk.QueueSkip},
		"another pod's devices change on a roomy node": {
			afterPod, lsr("other", 2, bound("roomy", "0,8")), given, fwk.Queue,
		},
		"room on a node that the pod's selector bars": {
			afterPod, lsr("gone", 2, bound("barred", "0,8")), nil,
			fwk.QueueSkip,
		},
		"a pod goes from a node that then has room":    {afterPod, gone("roomy"), nil, fwk.Queue},
		"a pod goes from a node that is still full":    {afterPod, gone("full"), nil, fwk.QueueSkip},
		"a pod goes from the full, nominated node":     {afterAwaited, gone("full"), nil, fwk.Queue},
		"an unbound pod goes":                          {afterPod, lsr("gone", 2), nil, fwk.QueueSkip},
		"a nominated pod goes":                         {afterPod, nominated, nil, fwk.Queue},
		"the pod itself is edited":                     {afterPod, pod, edited, fwk.Queue},
		"the pod itself gets its refusal":              {afterPod, pod, refused, fwk.QueueSkip},
		"another pod's status changes":                 {afterPod, gone("roomy"), gone("roomy"), fwk.QueueSkip},
		"another pod's CPUs change on a roomy node":    {afterPod, gone("roomy"), smaller, fwk.Queue},
		"another pod appears, unbound":                 {afterPod, nil, lsr("new", 2), fwk.QueueSkip},
		"an object of another kind under our resource": {afterTopology, nil, full, fwk.Queue},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tc.hint(klog.Background(), pod, tc.old, tc.obj)
			if err != nil || got != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestSignaturesAreEqualExactlyWhenEveryNodeAnswersEqually(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "")
	pods := []*corev1.Pod{
		newPod("plain", asks("100m", "1")),
		newPod("be", qosClass("BE"), asks("1", "1")),
		lsr("two", 2), lsr("two again", 2), lsr("four", 4),
		newPod("lse", qosClass("LSE"), asks("2", "2")),
		lsr("spread", 2, spec(`{"preferredCPUBindPolicy":"SpreadByPCPUs"}`)),
		lsr("required", 2, spec(`{"requiredCPUBindPolicy":"SpreadByPCPUs"}`)),
		lsr("exclusive", 2, spec(`{"preferredCPUExclusivePolicy":"PCPULevel"}`)),
		newPod("burst", qosClass("LS"), asks("1", "2"), spec(`{"preferredCPUBindPolicy":"ConstrainedBurst"}`)),
		lsr("single", 2, func(p *corev1.Pod) {
			p.Annotations[annotation.NUMATopologySpecKey] = `{"numaTopologyPolicy":"SingleNUMANode"}`
		}),
	}
	sign := func(p *corev1.Pod) string {
		fragments, status := f.SignPod(t.Context(), p)
		if !status.IsSuccess() {
			t.Fatalf("pod %s is not signed: %s", p.Name, status.Message())
		}
		if len(fragments) == 0 {
			return ""
		}
		return fragments[0].Value.(string)
	}
	for _, a := range pods {
		for _, b := range pods {
			ra, rb := f.request(t, a), f.request(t, b)
			alike := ra.Concerns() == rb.Concerns() && (!ra.Concerns() || ra.Signature() == rb.Signature())
			if (sign(a) == sign(b)) != alike {
				t.Errorf("%s and %s: signatures %q and %q, want equal = %t", a.Name, b.Name, sign(a), sign(b), alike)
			}
		}
	}
	if sign(lsr("x", 2)) == sign(lsr("y", 4)) {
		t.Error("two and four CPUs have one signature")
	}
	if _, status := f.SignPod(t.Context(), newPod("bad", qosClass("LSR"), asks("1500m", "1500m"))); status.IsSuccess() {
		t.Error("a pod that cannot be read must not be signed")
	}
}

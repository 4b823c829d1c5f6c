package sim

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/sched/elasticquota"
	"github.com/tenon-project/tenon/internal/testkit"
)

// numaCards are GPUs with their NUMA nodes, for publishedOn.
func numaCards(nodes ...int) (list []string) {
	for _, n := range nodes {
		list = append(list, fmt.Sprintf("gpu resource.kubernetes.io/numaNode: {int: %d}", n))
	}
	return list
}

// claimTemplates are requests for GPUs.
var claimTemplates = map[string]string{
	"one": "requests: [{name: r, exactly: {deviceClassName: gpu}}]",
	"all": "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]",
}

// namedClaim is a claim for one GPU. holders are the pods that it is reserved for; it has device d0 if there are any.
func namedClaim(name string, holders ...string) string {
	status, refs := "", []string{}
	for _, h := range holders {
		refs = append(refs, fmt.Sprintf("{resource: pods, name: %s, uid: %[1]s}", h))
	}
	if len(holders) > 0 {
		status = "status: {reservedFor: [" + strings.Join(refs, ", ") + "], allocation: {devices: {results: " +
			"[{request: r, driver: gpu, pool: n0, device: d0}]}, nodeSelector: {nodeSelectorTerms: [{matchFields: " +
			"[{key: metadata.name, operator: In, values: [n0]}]}]}}}, "
	}
	return fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: %s, finalizers: "+
		"[resource.kubernetes.io/delete-protection]}, %sspec: {devices: {requests: [{name: r, exactly: "+
		"{deviceClassName: gpu}}]}}}\n---", name, status)
}

// deviceQuota limits the devices of class gpu in namespace default.
func deviceQuota(least, most int) string {
	return fmt.Sprintf("\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: devices, "+
		"namespace: default}, spec: {min: {gpu.deviceclass.resource.k8s.io/devices: %d}, max: "+
		"{gpu.deviceclass.resource.k8s.io/devices: %d}}}\n---", least, most)
}

// refusedDevices is the refusal of the quota.
func refusedDevices(limit, used, request int) string {
	const gpus = "gpu.deviceclass.resource.k8s.io/devices"
	return fmt.Sprintf("Insufficient quotas, quotaName: devices, runtime: %s:%d, used: %[1]s:%[3]d, pod's request: "+
		"%[1]s:%[4]d, exceedDimensions: [%[1]s]", gpus, limit, used, request)
}

// TestClaimsBesideOtherFeatures: machine n0 has two NUMA nodes of 16 CPUs each. Each pod is listed with its state, its
// NUMA nodes, the devices of its claims and why it waits.
func TestClaimsBesideOtherFeatures(t *testing.T) {
	pod := func(name string, priority int, claims ...string) string {
		return exclusive(name, 2, "LS", "", fmt.Sprintf("\n  priority: %d", priority)+with(claims...))
	}
	running := func(name string, priority int, claims ...string) string {
		return exclusive(name, 2, "LS", ", uid: "+name, fmt.Sprintf("\n  nodeName: n0\n  priority: %d", priority)+
			with(claims...))
	}
	const mapped = "\n{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: mapped}, spec: " +
		"{extendedResourceName: example.com/gpu, selectors: [{cel: {expression: \"device.driver == 'gpu'\"}}]}}\n---"
	asking := func(name string, cpus int, qos string, priority int) string {
		return strings.Replace(exclusive(name, cpus, qos, "", "\n  priority: "+fmt.Sprint(priority)), "memory: 64Mi",
			"memory: 64Mi, example.com/gpu: 1", 1)
	}
	holding := func(name string, priority int) string {
		text := exclusive(name, 2, "LS", ", uid: "+name, fmt.Sprintf("\n  nodeName: n0\n  priority: %d\nstatus: "+
			"{extendedResourceClaimStatus: {resourceClaimName: %s, requestMappings: [{containerName: app, "+
			"resourceName: example.com/gpu, requestName: r}]}}", priority, name))
		return strings.Replace(text, "memory: 64Mi", "memory: 64Mi, example.com/gpu: 1", 1)
	}
	claimingUser := strings.Replace(using("a", "web", "", "cpu: 4", ""), "spec: {", "spec: {resourceClaims: [{"+
		"name: one, resourceClaimTemplateName: one}], ", 1)
	for name, c := range map[string]struct {
		in    string
		cards []int
		want  []string
	}{
		"a quota limits the devices of a class": {
			deviceQuota(0, 1) + pod("a", 2, "one") + pod("b", 1, "one"),
			[]int{0, 0},
			[]string{
				"a Scheduled gpu/n0/d0",
				"b Unschedulable QuotaExceeded: " + refusedDevices(1, 1, 1),
			},
		},
		"a quota counts a claim of two pods once": {
			deviceQuota(1, 1) + namedClaim("s") + pod("a", 2, "=s") + pod("b", 1, "=s"),
			[]int{0, 0},
			[]string{"a Scheduled gpu/n0/d0", "b Scheduled gpu/n0/d0"},
		},
		"a quota counts all devices as 32 before they are allocated": {
			deviceQuota(0, 31) + pod("a", 2, "all"),
			[]int{0, 0},
			[]string{"a Unschedulable QuotaExceeded: " + refusedDevices(31, 0, 32)},
		},
		"a quota counts all devices as those that were allocated": {
			deviceQuota(0, 32) + pod("a", 2, "all") + pod("b", 1, "one"),
			[]int{0},
			[]string{"a Scheduled gpu/n0/d0", "b Unschedulable InsufficientClaimDevices"},
		},
		"preemption frees the device of a claim whose only pod is evicted": {
			namedClaim("s", "a") + running("a", 1, "=s") + pod("b", 2, "one"),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0"},
		},
		"preemption evicts all pods of a claim": {
			namedClaim("s", "a", "c") + running("a", 1, "=s") + running("c", 1, "=s") + pod("b", 2, "one"),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0", "c Preempted"},
		},
		"no pod is evicted for a claim that another pod keeps": {
			namedClaim("s", "a", "c") + running("a", 1, "=s") + running("c", 3, "=s") + pod("b", 2, "one"),
			[]int{0},
			[]string{"a Existing gpu/n0/d0", "b Unschedulable InsufficientClaimDevices", "c Existing gpu/n0/d0"},
		},
		"a pod that uses a Reservation has claims": {
			reservationFor("r", "web", "a: b", "cpu: 4", "") + claimingUser,
			[]int{0},
			[]string{"a Scheduled gpu/n0/d0"},
		},
		"members of a gang get devices and CPUs on one NUMA node each": {
			exclusive("a", 12, "LSR", says("g", 2), with("one")) + exclusive("b", 12, "LSR", says("g", 2), with("one")),
			[]int{0, 1},
			[]string{"a Scheduled [0] gpu/n0/d0", "b Scheduled [1] gpu/n0/d1"},
		},
		"no member of a gang gets a device unless all do": {
			exclusive("a", 12, "LSR", says("g", 2), with("one")) + exclusive("b", 12, "LSR", says("g", 2), with("one")),
			[]int{0},
			[]string{"a Waiting", "b Waiting"},
		},
		"an extended resource that a DeviceClass maps": {
			mapped + asking("a", 2, "LS", 2) + pod("b", 1, "one"),
			[]int{0},
			[]string{"a Scheduled gpu/n0/d0", "b Unschedulable InsufficientClaimDevices"},
		},
		"an extended resource and CPUs on one NUMA node": {
			mapped + exclusive("x", 8, "LSR", "", "") + asking("a", 12, "LSR", 0),
			[]int{0, 1},
			[]string{"a Scheduled [1] gpu/n0/d1", "x Scheduled [0]"},
		},
		"preemption frees the device of an extended resource for a claim": {
			mapped + namedClaim("a", "a") + holding("a", 1) + pod("b", 2, "one"),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0"},
		},
		"preemption frees the device of a claim for an extended resource": {
			mapped + namedClaim("s", "a") + running("a", 1, "=s") + asking("b", 2, "LS", 2),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0"},
		},
		"a pod with an extended resource spares those without devices": {
			mapped + namedClaim("a", "a") + holding("a", 1) + running("c", 1) + asking("b", 2, "LS", 2),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0", "c Existing"},
		},
		"more for an extended resource than a claim has": {
			mapped + strings.Replace(asking("a", 2, "LS", 2), "gpu: 1", "gpu: 33", 1),
			[]int{0},
			[]string{"a Unschedulable ExtendedResourceTooLarge"},
		},
		"more than a claim has on a node with a device plugin": {
			mapped + "\n{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 8, " +
				"memory: 8Gi, pods: 110, example.com/gpu: 40}, capacity: {cpu: 8, memory: 8Gi, pods: 110}}}\n---" +
				strings.Replace(asking("a", 2, "LS", 2), "gpu: 1", "gpu: 33", 1),
			[]int{0},
			[]string{"a Scheduled"},
		},
		"no pod is evicted for an extended resource that one of a higher priority has": {
			mapped + namedClaim("a", "a") + holding("a", 3) + asking("b", 2, "LS", 2),
			[]int{0},
			[]string{"a Existing gpu/n0/d0", "b Unschedulable InsufficientClaimDevices"},
		},
		"pods without devices are spared": {
			namedClaim("s", "a") + running("a", 1, "=s") + running("c", 1) + pod("b", 2, "one"),
			[]int{0},
			[]string{"a Preempted", "b Scheduled gpu/n0/d0", "c Existing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := decided(t, machine("n0")+c.in+publishedOn(numaCards(c.cards...), claimTemplates))
			var got []string
			for i := range r.Pods {
				p := &r.Pods[i]
				text := p.Name + " " + p.State
				if len(p.NUMANodes) > 0 {
					text += fmt.Sprint(" ", p.NUMANodes)
				}
				for j := range p.Claims {
					text += " " + strings.Join(p.Claims[j].Devices, " ")
				}
				if p.State == "Unschedulable" {
					text += " " + p.Reasons[0].Code.String()
					if strings.HasPrefix(p.Reasons[0].Message, "Insufficient quotas") {
						text += ": " + p.Reasons[0].Message
					}
				}
				got = append(got, text)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDevicesOfAClassCountUnderAnotherName: quota devices limits nvidia.com/gpu, which class gpu is mapped to. A device
// plugin has two on node n1.
func TestDevicesOfAClassCountUnderAnotherName(t *testing.T) {
	t.Parallel()
	quotaOf := func(most int) string {
		return fmt.Sprintf("\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: "+
			"devices, namespace: default}, spec: {max: {nvidia.com/gpu: %d}}}\n---", most)
	}
	const plugin = "\n{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 8, memory: 8Gi, " +
		"pods: 110, nvidia.com/gpu: 2}, capacity: {cpu: 8, memory: 8Gi, pods: 110, nvidia.com/gpu: 2}}}\n---"
	const byPlugin = "\n{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {priority: 9, containers: [{name: c, " +
		"image: i, resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}}]}}\n---"
	claiming := exclusive("b", 2, "LS", "", with("one"))
	for name, c := range map[string]struct{ in, want string }{
		"both count":       {quotaOf(1) + byPlugin + claiming, "a Scheduled, b Unschedulable QuotaExceeded"},
		"enough for both":  {quotaOf(2) + byPlugin + claiming, "a Scheduled, b Scheduled"},
		"claims alone":     {quotaOf(1) + claiming, "b Scheduled"},
		"more than a node": {quotaOf(9) + byPlugin + claiming, "a Scheduled, b Scheduled"},
	} {
		cfg := configured(t, elasticquota.Name,
			"deviceClassMappings: [{name: nvidia.com/gpu, deviceClassNames: [gpu]}]")
		in := machine("n0") + plugin + c.in + publishedOn(numaCards(0, 0), claimTemplates)
		r, err := Run(t.Context(), Input{
			Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard, Config: cfg,
		})
		testkit.Check(t, err)
		var got []string
		for i := range r.Pods {
			p := &r.Pods[i]
			text := p.Name + " " + p.State
			if len(p.Reasons) > 0 {
				text += " " + p.Reasons[0].Code.String()
			}
			got = append(got, text)
		}
		slices.Sort(got)
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: got %s, want %s", name, text, c.want)
		}
	}
}

func TestAReservationWithClaimsIsRefused(t *testing.T) {
	t.Parallel()
	in := machine("n0") + strings.Replace(reservationFor("r", "web", "a: b", "cpu: 4", ""), "spec: {containers",
		"spec: {resourceClaims: [{name: one, resourceClaimTemplateName: one}], containers", 1)
	_, err := Run(t.Context(), Input{Paths: []string{"-"}, Stdin: strings.NewReader(in), Warn: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "spec.template.spec.resourceClaims: must be empty: a Reservation "+
		"cannot hold devices of ResourceClaims") {
		t.Errorf("got %v", err)
	}
}

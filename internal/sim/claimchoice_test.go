package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// publishedOn are devices of node n0, each by driver and attributes as YAML, with classes that are called as the
// drivers, and templates for requests of a claim.
func publishedOn(devices []string, templates map[string]string) string {
	var b strings.Builder
	for _, driver := range []string{"gpu", "nic"} {
		var list []string
		for _, d := range devices {
			if publisher, attributes, _ := strings.Cut(d, " "); publisher == driver {
				list = append(list, fmt.Sprintf("{name: d%d, attributes: {%s}}", len(list), attributes))
			}
		}
		fmt.Fprintf(&b, "\n{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: %s}, spec: "+
			"{selectors: [{cel: {expression: \"device.driver == '%[1]s'\"}}]}}\n---\n{apiVersion: resource.k8s.io/v1, "+
			"kind: ResourceSlice, metadata: {name: %[1]s}, spec: {driver: %[1]s, nodeName: n0, pool: {name: n0, "+
			"generation: 1, resourceSliceCount: 1}, devices: [%s]}}\n---", driver, strings.Join(list, ", "))
	}
	for name, requests := range templates {
		fmt.Fprintf(&b, "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: %s}, spec: "+
			"{spec: {devices: {%s}}}}\n---", name, requests)
	}
	return b.String()
}

// with are claims of a pod, of templates or, written as =NAME, by name.
func with(claims ...string) string {
	var refs []string
	for _, c := range claims {
		key := "resourceClaimTemplateName: "
		if c[0] == '=' {
			key = "resourceClaimName: "
		}
		refs = append(refs, fmt.Sprintf("{name: %s, %s%[1]s}", strings.TrimPrefix(c, "="), key))
		refs[len(refs)-1] = strings.ReplaceAll(refs[len(refs)-1], "Name: =", "Name: ")
	}
	return "\n  resourceClaims: [" + strings.Join(refs, ", ") + "]"
}

// TestDevicesOfClaimsAreChosenWithTheRestOfThePod: machine n0 has two NUMA nodes of 16 CPUs each. Each pod is listed
// with its NUMA nodes and the devices of its claims.
func TestDevicesOfClaimsAreChosenWithTheRestOfThePod(t *testing.T) {
	const (
		numa0     = "gpu resource.kubernetes.io/numaNode: {int: 0}"
		numa1     = "gpu resource.kubernetes.io/numaNode: {int: 1}"
		nic1      = "nic resource.kubernetes.io/numaNode: {int: 1}"
		unknown   = "gpu index: {int: 0}"
		allocated = "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: %s}, spec: {devices: " +
			"{requests: [{name: r, exactly: {deviceClassName: gpu}}]}}, status: {allocation: {devices: {results: " +
			"[{request: r, driver: gpu, pool: n0, device: %s}]}, nodeSelector: {nodeSelectorTerms: [{matchFields: " +
			"[{key: metadata.name, operator: In, values: [n0]}]}]}}}}\n---"
	)
	templates := map[string]string{
		"one":   "requests: [{name: r, exactly: {deviceClassName: gpu}}]",
		"two":   "requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]",
		"all":   "requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]",
		"share": "requests: [{name: r, exactly: {deviceClassName: share}}]",
		"beside": "requests: [{name: g, exactly: {deviceClassName: gpu}}, " +
			"{name: net, exactly: {deviceClassName: nic}}]",
		"better": "requests: [{name: r, firstAvailable: [{name: big, deviceClassName: gpu, selectors: [{cel: " +
			"{expression: \"device.attributes['gpu'].size == 'big'\"}}]}, {name: small, deviceClassName: gpu}]}]",
	}
	required := strings.Replace(machine("n0"), "labels: {", "labels: {node.koordinator.sh/numa-topology-policy: "+
		"SingleNUMANode, ", 1)
	filler := exclusive("a-filler", 12, "LSR", "", "\n  priority: 9000")
	pod := func(name string, cpus int, claims ...string) string {
		return exclusive(name, cpus, "LSR", "", with(claims...))
	}
	listed := "\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: n0}, spec: " +
		"{devices: [{type: gpu, id: GPU-0, minor: 0, health: true, topology: {nodeID: 0, pcieID: pci0000:00, " +
		"busID: \"0000:01:00.0\"}}, {type: gpu, id: GPU-1, minor: 1, health: true, topology: {nodeID: 1, " +
		"pcieID: pci0000:80, busID: \"0000:81:00.0\"}}]}}\n---"
	sharable := resourceObject("DeviceClass", "share", "spec: {selectors: [{cel: {expression: \"device.driver == "+
		"'share'\"}}]}") + sliceOf("s", "share", "n0", 1, 1, "devices: [{name: d0, allowMultipleAllocations: true, "+
		"attributes: {numaNodeID: {int: 0}}}, {name: d1, allowMultipleAllocations: true, attributes: {numaNodeID: "+
		"{int: 1}}}]")
	for name, c := range map[string]struct {
		in      string
		devices []string
		want    []string
	}{
		"a policy requires one NUMA node": {
			required + filler + pod("b", 8, "one"),
			[]string{numa0, numa1},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d1"},
		},
		"devices that several claims may share": {
			required + filler + sharable + pod("b", 8, "share"),
			nil,
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] share/n0/d1"},
		},
		"no policy: preferred": {
			machine("n0") + filler + pod("b", 8, "one"),
			[]string{numa0, numa1},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d1"},
		},
		"no policy: CPUs follow the only device": {
			machine("n0") + pod("b", 8, "one"),
			[]string{numa1},
			[]string{"b Scheduled [1] gpu/n0/d0"},
		},
		"no policy: no NUMA node has both": {
			machine("n0") + filler + pod("b", 8, "one"),
			[]string{numa0},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d0"},
		},
		"a policy, and no NUMA node has both": {
			required + filler + pod("b", 8, "one"),
			[]string{numa0},
			[]string{
				"a-filler Scheduled [0]",
				"b Unschedulable [] ClaimNotAligned: gpu/n0/d0 on NUMA node 0; cpu: 8 requested, NUMA nodes have 4, 16",
			},
		},
		"the driver says no NUMA node, the Device does": {
			required + listed + filler + pod("b", 8, "one"),
			[]string{"gpu uuid: {string: GPU-0}", "gpu uuid: {string: GPU-1}"},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d1"},
		},
		"nothing is known of devices": {
			required + filler + pod("b", 8, "one"),
			[]string{unknown, unknown},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d0"},
		},
		"a GPU and a NIC": {
			required + pod("b", 8, "beside"),
			[]string{numa0, numa1, nic1},
			[]string{"b Scheduled [1] gpu/n0/d1 nic/n0/d0"},
		},
		"two claims": {
			required + filler + pod("b", 8, "one", "beside"),
			[]string{numa0, numa1, numa1, nic1},
			[]string{"a-filler Scheduled [0]", "b Scheduled [1] gpu/n0/d1 gpu/n0/d2 nic/n0/d0"},
		},
		"two devices on one NUMA node": {
			machine("n0") + exclusive("b", 2, "LS", "", with("two")),
			[]string{numa0, numa1, numa1},
			[]string{"b Scheduled [] gpu/n0/d1 gpu/n0/d2"},
		},
		"one device leaves a pair whole": {
			machine("n0") + exclusive("b", 2, "LS", "", with("one")),
			[]string{numa0, numa0, numa1},
			[]string{"b Scheduled [] gpu/n0/d2"},
		},
		"all devices": {
			machine("n0") + pod("b", 8, "all"),
			[]string{numa0, numa1},
			[]string{"b Scheduled [0] gpu/n0/d0 gpu/n0/d1"},
		},
		"a claim that is allocated": {
			required + fmt.Sprintf(allocated, "old", "d1") + pod("b", 8, "=old"),
			[]string{numa0, numa1},
			[]string{"b Scheduled [1] gpu/n0/d1"},
		},
		"a claim that is allocated, and no CPUs beside it": {
			required + fmt.Sprintf(allocated, "old", "d0") + filler + pod("b", 8, "=old"),
			[]string{numa0, numa1},
			[]string{
				"a-filler Scheduled [0]",
				"b Unschedulable [] ClaimNotAligned: gpu/n0/d0 on NUMA node 0; cpu: 8 requested, NUMA nodes have 4, 16",
			},
		},
		"an alternative is not replaced by a later one": {
			required + filler + pod("b", 8, "better"),
			[]string{numa0 + ", size: {string: big}", numa1 + ", size: {string: small}"},
			[]string{
				"a-filler Scheduled [0]",
				"b Unschedulable [] ClaimNotAligned: gpu/n0/d0 on NUMA node 0; cpu: 8 requested, NUMA nodes have 4, 16",
			},
		},
		"preemption frees the CPUs beside a device": {
			required + exclusive("a-filler", 12, "LSR", ", annotations: {scheduling.koordinator.sh/resource-status: "+
				"'{\"cpuset\": \"0-5,16-21\"}'}", "\n  priority: 5\n  nodeName: n0") +
				exclusive("b", 8, "LSR", "", "\n  priority: 9000"+with("one")),
			[]string{numa0},
			[]string{"a-filler Preempted [] Preempted: ", "b Scheduled [0] gpu/n0/d0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := decided(t, c.in+publishedOn(c.devices, templates))
			var got []string
			for i := range r.Pods {
				p := &r.Pods[i]
				text := fmt.Sprintf("%s %s %d", p.Name, p.State, p.NUMANodes)
				for j := range p.Claims {
					text += " " + strings.Join(p.Claims[j].Devices, " ")
				}
				if len(p.Reasons) > 0 {
					_, detail, _ := strings.Cut(p.Reasons[0].Message, "not match: ")
					text += " " + p.Reasons[0].Code.String() + ": " + detail
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

package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

// published are devices of class card of node host that name cards GPU-0, GPU-1 …, by their attributes as YAML.
func published(attributes ...string) string {
	var devices []string
	for i, a := range attributes {
		devices = append(devices, fmt.Sprintf("{name: d%d, attributes: {%s}}", i, a))
	}
	return "\n" + classes + "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: " +
		"{name: one}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card}}]}}}}\n---\n" +
		"{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: s}, spec: {driver: x, nodeName: " +
		"host, pool: {name: host, generation: 1, resourceSliceCount: 1}, devices: [" + strings.Join(devices, ", ") +
		"]}}\n---"
}

// listed is the Device of node host with GPUs GPU-0, GPU-1 …
func listed(n int) string {
	var devices []string
	for i := range n {
		devices = append(devices, fmt.Sprintf("{type: gpu, id: GPU-%d, minor: %[1]d, health: true, resources: "+
			"{koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 80Gi, koordinator.sh/gpu-memory-ratio: 100}, "+
			"topology: {nodeID: 0, pcieID: pci0000:00, busID: \"0000:0%[1]d:00.0\"}}", i))
	}
	return "\n{apiVersion: scheduling.koordinator.sh/v1alpha1, kind: Device, metadata: {name: host, annotations: " +
		"{node.tenon.sh/device-mode: Own}, labels: {node.koordinator.sh/gpu-vendor: nvidia}}, spec: {devices: [" +
		strings.Join(devices, ", ") + "]}}\n---"
}

// cardPod is a pod that gets devices by a claim each, by annotations, or both; earlier pods have a higher priority.
func cardPod(name string, priority int, share string, claims ...string) string {
	var refs []string
	for _, c := range claims {
		ref := "resourceClaimName: " + c
		if c == "one" {
			ref = "resourceClaimTemplateName: one"
		}
		refs = append(refs, fmt.Sprintf("{name: %s, %s}", c, ref))
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {priority: %d, resourceClaims: "+
		"[%s], containers: [{name: c, image: i, resources: {requests: {%s}, limits: {%[4]s}}}]}}\n---", name, priority,
		strings.Join(refs, ", "), share)
}

// decided simulates an input.
func decided(t *testing.T, in string) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, in, nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	r, err := e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	atRest(t, e)
	return r
}

// TestACardIsGivenToAClaimOrToAPod: a node with cards that a DRA driver and the Device object both publish.
func TestACardIsGivenToAClaimOrToAPod(t *testing.T) {
	const (
		half  = "koordinator.sh/gpu-core: 50, koordinator.sh/gpu-memory-ratio: 50"
		whole = "nvidia.com/gpu: 1"
		uuid0 = "uuid: {string: GPU-0}"
		uuid1 = "uuid: {string: GPU-1}"
		pci1  = "resource.kubernetes.io/pciBusID: {string: \"00000000:01:00.0\"}"
	)
	allocated := func(device string) string {
		return "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: old}, spec: {devices: " +
			"{requests: [{name: r, exactly: {deviceClassName: card}}]}}, status: {allocation: {devices: {results: " +
			"[{request: r, driver: x, pool: host, device: " + device + "}]}, nodeSelector: {nodeSelectorTerms: " +
			"[{matchFields: [{key: metadata.name, operator: In, values: [host]}]}]}}}}\n---"
	}
	node := cpuNode("host", 8)
	for name, c := range map[string]struct {
		in   string
		want []string // state of each pod, with the minor of its GPU or the device of its claim
	}{
		"claims avoid a share": {
			node + listed(2) + published(uuid0, uuid1) + cardPod("a", 9, half) + cardPod("b", 8, "", "one") +
				cardPod("c", 7, "", "one") + cardPod("d", 6, half),
			[]string{
				"a Scheduled gpu 0", "b Scheduled b-one: x/host/d1", "c Unschedulable ClaimDevicesHeld",
				"d Scheduled gpu 0",
			},
		},
		"pods avoid a claim": {
			node + listed(2) + published(uuid0, pci1) + cardPod("a", 9, "", "one") + cardPod("b", 8, half) +
				cardPod("c", 7, whole),
			[]string{"a Scheduled a-one: x/host/d0", "b Scheduled gpu 1", "c Unschedulable InsufficientDevices"},
		},
		"a pod with both gets two cards": {
			node + listed(2) + published(uuid0, uuid1) + cardPod("a", 9, half, "one"),
			[]string{"a Scheduled gpu 1; a-one: x/host/d0"},
		},
		"a claim of another scheduler that no pod uses": {
			node + listed(2) + published(uuid0, uuid1) + allocated("d0") + cardPod("a", 9, whole) +
				cardPod("b", 8, half),
			[]string{"a Scheduled gpu 1", "b Unschedulable InsufficientDevices"},
		},
		"a claim whose device is not published": {
			node + listed(2) + published(uuid0, uuid1) + allocated("gone") + cardPod("a", 9, half) +
				cardPod("b", 8, "", "one"),
			[]string{"a Unschedulable ForeignDevices", "b Scheduled b-one: x/host/d0"},
		},
		"cards that no Device lists": {
			node + published(uuid0, uuid1) + cardPod("a", 9, "", "one") + cardPod("b", 8, "", "one"),
			[]string{"a Scheduled a-one: x/host/d0", "b Scheduled b-one: x/host/d1"},
		},
		"devices that are no cards": {
			node + listed(1) + published("", "") + cardPod("a", 9, whole) + cardPod("b", 8, "", "one"),
			[]string{"a Scheduled gpu 0", "b Scheduled b-one: x/host/d0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := decided(t, c.in)
			var got []string
			for i := range r.Pods {
				p := &r.Pods[i]
				text := strings.TrimSpace(p.Name + " " + p.State + " " + p.devicesText())
				if len(p.Reasons) > 0 {
					text += " " + p.Reasons[0].Code.String()
				}
				got = append(got, text)
			}
			slices.Sort(got)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%+v", diff, r.Pods)
			}
		})
	}
}

package sim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestAPodEvictsForACardWhoeverHasIt: a node with cards of both kinds, of which pods of a lower priority have some by
// claims and some without.
func TestAPodEvictsForACardWhoeverHasIt(t *testing.T) {
	t.Parallel()
	claim := func(name string, minute, priority, n int) string { return cardUser(name, "", minute, priority, n, 0) }
	gpu := func(name string, minute, priority, n int) string { return cardUser(name, "", minute, priority, 0, n) }
	const l0, l1, arrived = "0s Started l0", "0s Started l1", "1m0s Arrived p"
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"a pod of a claim": {
			claim("l0", 1, 1, 1) + gpu("p", 2, 10, 200), []string{l0, arrived, "1m0s Preempted l0", "1m0s Started p"},
		},
		"a claim of a pod": {
			gpu("l0", 1, 1, 50) + claim("p", 2, 10, 2), []string{l0, arrived, "1m0s Preempted l0", "1m0s Started p"},
		},
		"the less important one of two": {
			claim("l0", 1, 2, 1) + claim("l1", 1, 1, 1) + gpu("p", 2, 10, 100),
			[]string{l0, l1, arrived, "1m0s Preempted l1", "1m0s Started p"},
		},
		"one that is more important": {claim("l0", 1, 11, 1) + gpu("p", 2, 10, 200), []string{l0, arrived}},
		"for both kinds": {
			claim("l0", 1, 1, 1) + cardUser("p", "", 2, 10, 1, 100),
			[]string{l0, arrived, "1m0s Preempted l0", "1m0s Started p"},
		},
		"a gang of both kinds": {
			claim("l0", 1, 1, 1) + gpu("l1", 1, 1, 50) + cardUser("p", says("g", 2), 2, 10, 0, 100) +
				cardUser("q", says("g", 2), 2, 10, 1, 0),
			[]string{
				l0, l1, arrived, "1m0s Arrived q", "1m0s Preempted l0", "1m0s Preempted l1", "1m0s Started p",
				"1m0s Started q",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := cpuNode("host", 8) + listed(2) + published(uuids(2)...) + cardTemplates(2)
			_, got := passing(t, in+c.in, Until{After: time.Hour})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// cardUser is a pod of a priority that comes at a minute and asks for cards: some by a claim, and gpus percent without.
func cardUser(name, head string, minute, priority, claims, gpus int) string {
	more, limits := fmt.Sprintf(", priority: %d", priority), "cpu: 1"
	if claims > 0 {
		more += fmt.Sprintf(", resourceClaims: [{name: o, resourceClaimTemplateName: cards-%d}]", claims)
	}
	if gpus > 0 {
		limits += fmt.Sprintf(", koordinator.sh/gpu: %d", gpus)
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s%s, creationTimestamp: "+
		"\"2000-01-01T00:%02d:00Z\"}, spec: {containers: [{name: c, image: i, resources: {limits: {%s}}}]%s}}\n---",
		name, head, minute, limits, more)
}

// TestWhoIsEvictedForCardsIsNeeded: random pods of a low priority have some of 5 cards, by claims and without. One of a
// high priority evicts none that it could have spared, and starts whatever the others have.
func TestWhoIsEvictedForCardsIsNeeded(t *testing.T) {
	t.Parallel()
	const total = 5
	node := cpuNode("host", 16) + listed(total) + published(uuids(total)...) + cardTemplates(total)
	evicted := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 58))
		lows, gpus := "", 0
		for i := range 2 + r.IntN(4) {
			name := fmt.Sprint("l", i)
			if r.IntN(2) == 0 {
				lows += cardUser(name, "", 1, 1+r.IntN(3), 1+r.IntN(2), 0)
			} else {
				lows += cardUser(name, "", 1, 1+r.IntN(3), 0, []int{50, 100, 200}[r.IntN(3)])
			}
		}
		claims := r.IntN(total + 1)
		if claims < total && r.IntN(2) == 0 || claims == 0 {
			gpus = 1 + r.IntN(total-claims)
		}
		has := map[string][]string{} // the cards of each low pod
		before := decided(t, node+lows)
		for i := range before.Pods {
			has[before.Pods[i].Name] = cardsHeld(&before.Pods[i])
		}
		_, lines := passing(t, node+lows+cardUser("p", "", 2, 10, claims, 100*gpus), Until{After: time.Hour})
		started, gone := startOf(lines, "p") == "1m0s", map[string]bool{}
		for _, line := range lines {
			if _, name, ok := strings.Cut(line, "Preempted "); ok {
				gone[name] = true
				evicted++
			}
		}
		free := func(spared string) int { // the cards that pods leave
			used := map[string]bool{}
			for name, all := range has {
				for _, card := range all {
					used[card] = used[card] || name == spared || !gone[name]
				}
			}
			maps.DeleteFunc(used, func(_ string, has bool) bool { return !has })
			return total - len(used)
		}
		if !started || free("") < claims+gpus {
			t.Errorf("seed %d: p, which needs %d and %d cards, started: %t:\n%s\n%v", seed, claims, gpus, started,
				strings.Join(lines, "\n"), has)
		}
		for name := range gone {
			if free(name) >= claims+gpus {
				t.Errorf("seed %d: %s could have been spared for %d and %d cards:\n%s\n%v", seed, name, claims, gpus,
					strings.Join(lines, "\n"), has)
			}
		}
	}
	if t.Logf("%d pods were evicted", evicted); evicted < 40 {
		t.Errorf("%d pods were evicted", evicted)
	}
}

// cardsHeld are the numbers of the cards that a pod has.
func cardsHeld(p *Pod) (numbers []string) {
	for _, d := range p.Devices["gpu"] {
		numbers = append(numbers, fmt.Sprint(d.Minor))
	}
	for _, c := range p.Claims {
		for _, d := range c.Devices {
			numbers = append(numbers, strings.TrimPrefix(d, "x/host/d"))
		}
	}
	return numbers
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenon-project/tenon/internal/testkit"
)

// cardsOf are devices of class card of one node.
func cardsOf(node string, n int) string {
	var devices []string
	for i := range n {
		devices = append(devices, fmt.Sprintf("{name: %s%d}", node, i))
	}
	return fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: %s}, spec: "+
		"{driver: x, nodeName: %[1]s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}, devices: [%s]}}\n---",
		node, strings.Join(devices, ", "))
}

// claiming are pods of gang g with claims, of which the gang needs all.
func claiming(pods, cpus int, claims string) (in string) {
	const one = "{devices: {requests: [{name: r, exactly: {deviceClassName: card}}]}}"
	in = "\n" + classes + "\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: shared}, " +
		"spec: " + one + "}\n---\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: " +
		"{name: own}, spec: {spec: " + one + "}}\n---"
	for i := range pods {
		in += cpuPod(fmt.Sprint("p", i), cpus, says("g", pods), ", resourceClaims: ["+claims+"]")
	}
	return in
}

const (
	sharedClaim = "{name: s, resourceClaimName: shared}"
	ownClaim    = "{name: o, resourceClaimTemplateName: own}"
)

// allocations are the claims of a cluster with their devices and the pods that use them. A device that two claims have
// is an error, and so is a claim that still waits to be written.
func allocations(t *testing.T, e *engine) map[string]string {
	t.Helper()
	out, owner := map[string]string{}, map[string]string{}
	for _, o := range e.api.claims.GetStore().List() {
		c := o.(*resourcev1.ResourceClaim)
		if e.core.Profiles["default-scheduler"].SharedDRAManager().ResourceClaims().GetPendingAllocation(c.UID) != nil {
			t.Errorf("claim %s is still being allocated", c.Name)
		}
		if c.Status.Allocation == nil {
			continue
		}
		var devices, users []string
		for _, d := range c.Status.Allocation.Devices.Results {
			if other := owner[d.Device]; other != "" {
				t.Errorf("claims %s and %s both have device %s", other, c.Name, d.Device)
			}
			owner[d.Device] = c.Name
			devices = append(devices, d.Pool)
		}
		for _, r := range c.Status.ReservedFor {
			users = append(users, r.Name)
		}
		slices.Sort(users)
		out[c.Name] = fmt.Sprint(devices, users)
	}
	return out
}

// TestMembersOfAGangShareAClaim: a gang starts whose members share one claim, also beside claims of their own, with one
// allocation of each claim. What a plan tried is not written.
func TestMembersOfAGangShareAClaim(t *testing.T) {
	onB := func(more ...string) map[string]string {
		out := map[string]string{}
		for _, c := range more {
			name, users, _ := strings.Cut(c, " ")
			out[name] = "[b] [" + users + "]"
		}
		return out
	}
	const started = "p0 Scheduled b, p1 Scheduled b, p2 Scheduled b"
	const waits = "p0 Waiting, p1 Waiting, p2 Waiting"
	for name, c := range map[string]struct {
		in     string
		states string
		want   map[string]string
		writes int64 // of a claim, its finalizer included; two for the first pod of each, one for each other
	}{
		"one claim of all": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 1) + claiming(3, 1, sharedClaim),
			started, onB("shared p0 p1 p2"), 4,
		},
		"claims of their own": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 3) + claiming(3, 1, ownClaim),
			started, onB("p0-o p0", "p1-o p1", "p2-o p2"), 6,
		},
		"the shared claim before their own": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 4) + claiming(3, 1, sharedClaim+", "+ownClaim),
			started, onB("shared p0 p1 p2", "p0-o p0", "p1-o p1", "p2-o p2"), 10,
		},
		"the shared claim behind their own": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 4) + claiming(3, 1, ownClaim+", "+sharedClaim),
			started, onB("shared p0 p1 p2", "p0-o p0", "p1-o p1", "p2-o p2"), 10,
		},
		"a device less than their own claims need": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 3) + claiming(3, 1, sharedClaim+", "+ownClaim),
			waits, onB(), 0,
		},
		"the node of the shared device is full": {
			cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("b", 1) + claiming(3, 4, sharedClaim),
			waits, onB(), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withoutLog(t.Context()))
			defer cancel()
			w := worldOf(t, c.in, nil)
			e, err := newEngine(ctx, w)
			testkit.Check(t, err)
			var writes, patches atomic.Int64
			e.api.fault = func(r *http.Request, _ []byte) error {
				switch ofClaim := strings.Contains(r.URL.Path, "/resourceclaims/"); {
				case ofClaim && r.Method == http.MethodPut:
					writes.Add(1)
				case ofClaim && r.Method == http.MethodPatch:
					patches.Add(1)
				}
				return nil
			}
			r, err := e.decide(ctx, w, io.Discard)
			testkit.Check(t, err)
			var states []string
			for _, p := range r.Pods {
				states = append(states, strings.TrimSpace(p.Name+" "+p.State+" "+p.Node))
			}
			if got := strings.Join(states, ", "); got != c.states {
				t.Errorf("got %s, want %s: %v", got, c.states, r.Pods[0].Reasons)
			}
			if diff := cmp.Diff(c.want, allocations(t, e)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if writes.Load() != c.writes || patches.Load() != 0 {
				t.Errorf("%d writes of claims and %d patches, want %d and none", writes.Load(), patches.Load(),
					c.writes)
			}
			atRest(t, e)
		})
	}
}

// TestTheFirstMemberFailsToWriteASharedClaim: the next one writes the allocation, and the first one is bound later.
func TestTheFirstMemberFailsToWriteASharedClaim(t *testing.T) {
	ctx, cancel := context.WithCancel(withoutLog(t.Context()))
	defer cancel()
	w := worldOf(t, cpuNode("b", 8)+cardsOf("b", 4)+claiming(3, 1, sharedClaim+", "+ownClaim), nil)
	e, err := newEngine(ctx, w)
	testkit.Check(t, err)
	var failed atomic.Bool
	e.api.fault = func(r *http.Request, _ []byte) error {
		if strings.HasSuffix(r.URL.Path, "/resourceclaims/shared/status") && failed.CompareAndSwap(false, true) {
			return apierrors.NewInternalError(errors.New("not now"))
		}
		return nil
	}
	r, err := e.decide(ctx, w, io.Discard)
	testkit.Check(t, err)
	for _, p := range r.Pods {
		if p.State != Scheduled {
			t.Errorf("%s is %s %v", p.Name, p.State, p.Reasons)
		}
	}
	want := map[string]string{
		"shared": "[b] [p0 p1 p2]", "p0-o": "[b] [p0]", "p1-o": "[b] [p1]", "p2-o": "[b] [p2]",
	}
	if diff := cmp.Diff(want, allocations(t, e)); diff != "" || !failed.Load() {
		t.Errorf("failed %v, claims (-want +got):\n%s", failed.Load(), diff)
	}
}

// TestPodsOfAPodGroupShareItsClaims: a claim that Kubernetes' PodGroup lists as its pods do is one for all, also for
// those that come later, and is reserved for the PodGroup. Other claims are the pods' own.
func TestPodsOfAPodGroupShareItsClaims(t *testing.T) {
	const allocated = "\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: shared, uid: u}, " +
		"spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card}}]}}, status: {allocation: {devices: " +
		"{results: [{request: r, driver: x, pool: a, device: a0}]}, nodeSelector: {nodeSelectorTerms: " +
		"[{matchFields: [{key: " +
		"metadata.name, operator: In, values: [a]}]}]}}, reservedFor: [%s]}}\n---"
	const ofGroup = "{apiGroup: scheduling.k8s.io, resource: podgroups, name: g, uid: group}"
	const others = "{resource: pods, name: other, uid: other}"
	full := cpuNode("a", 2) + cpuNode("b", 8) + cardsOf("a", 1) + cardsOf("b", 1) +
		cpuPod("full", 2, "", ", nodeName: a")
	for name, c := range map[string]struct {
		nodes, group, pods string
		states             string
		want               map[string]string
	}{
		"of a template": {
			cpuNode("b", 8) + cardsOf("b", 1), ownClaim, ownClaim,
			"p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{"g-o": "[b] [g]"},
		},
		"by name": {
			cpuNode("b", 8) + cardsOf("b", 1), sharedClaim, sharedClaim,
			"p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{"shared": "[b] [g]"},
		},
		"beside claims of their own": {
			cpuNode("b", 8) + cardsOf("b", 4), sharedClaim, ownClaim + ", " + sharedClaim,
			"p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{
				"shared": "[b] [g]", "p0-o": "[b] [p0]", "p1-o": "[b] [p1]", "p2-o": "[b] [p2]",
			},
		},
		"under another name": {
			cpuNode("b", 8) + cardsOf("b", 3), "{name: other, resourceClaimTemplateName: own}", ownClaim,
			"p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{"p0-o": "[b] [p0]", "p1-o": "[b] [p1]", "p2-o": "[b] [p2]"},
		},
		"left behind on a full node": {
			full + fmt.Sprintf(allocated, ofGroup), sharedClaim, sharedClaim,
			"full Existing a, p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{"shared": "[b] [g]"},
		},
		"left behind by pods that share it": {
			full + fmt.Sprintf(allocated, "{resource: pods, name: p0, uid: p0}"), "", sharedClaim,
			"full Existing a, p0 Scheduled b, p1 Scheduled b, p2 Scheduled b",
			map[string]string{"shared": "[b] [p0 p1 p2]"},
		},
		"left behind, and used by a pod on the node": {
			full + fmt.Sprintf(allocated, ofGroup) + cpuPod("user", 0, "",
				", nodeName: a, resourceClaims: ["+sharedClaim+"]"), sharedClaim, sharedClaim,
			"full Existing a, p0 Waiting, p1 Waiting, p2 Waiting, user Existing a",
			map[string]string{"shared": "[a] [g]"},
		},
		"allocated, and not reserved": {
			full + fmt.Sprintf(allocated, ""), sharedClaim, sharedClaim,
			"full Existing a, p0 Waiting, p1 Waiting, p2 Waiting",
			map[string]string{"shared": "[a] []"},
		},
		"also reserved for others": {
			full + fmt.Sprintf(allocated, ofGroup+", "+others), sharedClaim, sharedClaim,
			"full Existing a, p0 Waiting, p1 Waiting, p2 Waiting",
			map[string]string{"shared": "[a] [g other]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(withoutLog(t.Context()))
			defer cancel()
			in := c.nodes + claiming(0, 0, "")
			if strings.Contains(c.nodes, "name: shared") { // the input has it
				in = c.nodes + "\n" + classes + "\n---"
			}
			in += fmt.Sprintf("\n{apiVersion: scheduling.k8s.io/v1beta1, kind: PodGroup, "+
				"metadata: {name: g, uid: group}, spec: {schedulingPolicy: {gang: {minCount: 2}}, "+
				"resourceClaims: [%s]}}\n---", c.group)
			for i := range 3 {
				name := fmt.Sprint("p", i)
				in += cpuPod(name, 1, ", uid: "+name, own("g")+", resourceClaims: ["+c.pods+"]")
			}
			w := worldOf(t, in, nil)
			e, err := newEngine(ctx, w)
			testkit.Check(t, err)
			r, err := e.decide(ctx, w, io.Discard)
			testkit.Check(t, err)
			var states []string
			for _, p := range r.Pods {
				states = append(states, strings.TrimSpace(p.Name+" "+p.State+" "+p.Node))
			}
			if got := strings.Join(states, ", "); got != c.states {
				t.Errorf("got %s, want %s: %v", got, c.states, r.Pods[len(r.Pods)-1].Reasons)
			}
			if diff := cmp.Diff(c.want, allocations(t, e)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			atRest(t, e)
		})
	}
}

// TestAGangEvictsPodsThatHaveDevicesOfClaims: nodes a and b have a device each, which pods of lower priority have.
func TestAGangEvictsPodsThatHaveDevicesOfClaims(t *testing.T) {
	t.Parallel()
	at := func(name, head string, minute, priority int) string {
		return shared(name, "1", fmt.Sprintf("%s, creationTimestamp: \"2000-01-01T00:%02d:00Z\"", head, minute),
			fmt.Sprintf(", priority: %d, resourceClaims: [%s]", priority, ownClaim))
	}
	in := cpuNode("a", 8) + cpuNode("b", 8) + cardsOf("a", 1) + cardsOf("b", 1) + claiming(0, 0, "") +
		at("l0", "", 1, 1) + at("l1", "", 1, 1)
	gang := func(n int) (in string) {
		for i := range n {
			in += at(fmt.Sprint("g", i), says("g", n), 2, 10)
		}
		return in
	}
	l0, l1 := "0s Started l0", "0s Started l1"
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"both devices": {gang(2), []string{
			l0, l1, "1m0s Arrived g0", "1m0s Arrived g1", "1m0s Preempted l0", "1m0s Preempted l1", "1m0s Started g0",
			"1m0s Started g1",
		}},
		"a device more than there are": {gang(3), []string{
			l0, l1, "1m0s Arrived g0", "1m0s Arrived g1", "1m0s Arrived g2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := passing(t, in+c.in, Until{After: time.Hour})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestAGangStartsWithLaterAlternatives: each member asks for a whole card or else for half of one. A card has two
// halves, which a counter divides.
func TestAGangStartsWithLaterAlternatives(t *testing.T) {
	t.Parallel()
	class := func(kind string) string {
		return resourceObject("DeviceClass", kind, "spec: {selectors: [{cel: {expression: \"device.attributes['gpu']."+
			"kind == '"+kind+"'\"}}]}")
	}
	// pool is that of a node with so many cards; those of a NUMA node, -1 for none, are divisible or not.
	pool := func(node string, cards, numa int, divisible bool) string {
		var sets, devices []string
		device := func(card int, kind, name string, use int) {
			attributes := "kind: {string: " + kind + "}"
			if numa >= 0 {
				attributes += fmt.Sprintf(", resource.kubernetes.io/numaNode: {int: %d}", numa)
			}
			devices = append(devices, fmt.Sprintf("{name: %s%d, attributes: {%s}, consumesCounters: [{counterSet: "+
				"c%[2]d, counters: {part: {value: %[4]d}}}]}", name, card, attributes, use))
		}
		for i := range cards {
			sets = append(sets, fmt.Sprintf("{name: c%d, counters: {part: {value: 2}}}", i))
			device(i, "whole", "whole", 2)
			if divisible {
				device(i, "half", "left", 1)
				device(i, "half", "right", 1)
			}
		}
		in := sliceOf(node+"-a", "gpu", node, 1, 2, "sharedCounters: ["+strings.Join(sets, ", ")+"]") +
			sliceOf(node+"-b", "gpu", node, 1, 2, "devices: ["+strings.Join(devices, ", ")+"]")
		return strings.ReplaceAll(in, "nodeName: n0", "nodeName: "+node)
	}
	member := func(name, more string) string {
		return cpuPod(name, 1, more, ", resourceClaims: [{name: c, resourceClaimTemplateName: any}]")
	}
	gang := func(n int) (in string) {
		for i := range n {
			in += member(fmt.Sprint("p", i), says("g", n))
		}
		return in
	}
	claims := class("whole") + class("half") + resourceObject("ResourceClaimTemplate", "any", "spec: {spec: {devices: "+
		"{requests: [{name: r, firstAvailable: [{name: whole, deviceClassName: whole}, {name: half, deviceClassName: "+
		"half}]}]}}}")
	one := cpuNode("a", 8) + pool("a", 1, -1, true)
	for name, c := range map[string]struct{ in, want string }{
		"one card for two members": {
			one + gang(2), "p0 Scheduled gpu/a/left0\np1 Scheduled gpu/a/right0",
		},
		"a card for each member": {
			cpuNode("a", 8) + pool("a", 2, -1, true) + gang(2), "p0 Scheduled gpu/a/whole0\np1 Scheduled gpu/a/whole1",
		},
		"halves beside a card that is not divisible": {
			one + cpuNode("b", 8) + pool("b", 1, -1, false) + gang(3),
			"p0 Scheduled gpu/b/whole0\np1 Scheduled gpu/a/left0\np2 Scheduled gpu/a/right0",
		},
		"too few halves": {
			one + gang(3), "p0 Waiting",
		},
		"pods that are no gang": {
			one + member("p0", "") + member("p1", ""), "p0 Scheduled gpu/a/whole0\np1 Unschedulable",
		},
		"the halves are on another NUMA node than the free CPUs": {
			machine("n0") + pool("n0", 1, 1, true) + exclusive("x", 16, "LSR", "", "") +
				exclusive("p0", 6, "LSR", says("g", 2), with("any")) +
				exclusive("p1", 6, "LSR", says("g", 2), with("any")),
			"p0 Scheduled gpu/n0/left0\np1 Scheduled gpu/n0/right0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := outcomeOf(t, claims+c.in); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

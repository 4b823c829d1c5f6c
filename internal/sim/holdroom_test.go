package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/kube"
)

// TestWhatIsLeftBesideAHoldIsFree: a pod of one hour runs on the node, and a larger one holds the node until the hour
// is over. Another one, which declares no run time, may use what these two leave.
func TestWhatIsLeftBesideAHoldIsFree(t *testing.T) {
	t.Parallel()
	const hold, ended, heldStarts = "0s Started a", "1h0m0s Ended a", "1h0m0s Started b"
	now := []string{hold, "0s Started c", ended, heldStarts}
	at := func(since string) []string { return []string{hold, ended, heldStarts, since + " Started c"} }
	waits := []string{hold, ended, heldStarts}
	a := func(cpu string) string { return shared("a", cpu, expects("1h"), "") }
	cards := func(n int) string {
		in := cardsOf("w", n) + "\n" + classes + "\n---"
		for name, count := range map[string]int{"own": 1, "two": 2} {
			in += fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: %s}, "+
				"spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card, count: %d}}]}}}}\n---",
				name, count)
		}
		return in
	}
	claims := func(name, template, head string) string {
		return shared(name, "1", head, ", resourceClaims: [{name: o, resourceClaimTemplateName: "+template+"}]")
	}
	lsr := func(name string, cpus int, head string) string { return exclusive(name, cpus, "LSR", head, "") }
	const alone = `, annotations: {scheduling.koordinator.sh/numa-topology-spec: ` +
		`'{"numaTopologyPolicy":"SingleNUMANode"}'}`
	bind := func(policy string) string {
		return `, annotations: {scheduling.koordinator.sh/resource-spec: '{"requiredCPUBindPolicy":"` + policy + `"}'}`
	}
	gpu := func(name string, percent int, head string) string {
		return strings.Replace(gpuPod(name, 1, percent, ""), "{name: "+name+"}", "{name: "+name+head+"}", 1)
	}
	both := func(n int) string { // cards that a Device and a driver list
		return cpuNode("host", 8) + listed(n) + published(uuids(n)...) + cardTemplates(2)
	}
	const mapped = "\n{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: mapped}, spec: " +
		"{extendedResourceName: example.com/gpu, selectors: [{cel: {expression: \"device.driver == 'x'\"}}]}}\n---"
	asks := func(name string, n int) string {
		return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, "+
			"image: i, resources: {limits: {cpu: 1, example.com/gpu: %d}}}]}}\n---", name, n)
	}
	many := func(n int) string {
		return cpuNode("host", 8) + listed(n) + published(uuids(n)...) + cardTemplates(3) + mapped
	}
	const afterB = ", creationTimestamp: \"2000-01-01T00:01:00Z\"}"
	member := func(name string) string {
		return strings.Replace(asks(name, 1), "{name: "+name+"}", "{name: "+name+says("c", 2)+afterB, 1)
	}
	const card = "cpu: 1, koordinator.sh/gpu: 100"
	reserved := strings.Replace(reservationFor("r", "web", "a: b", card, ""), "{name: r}",
		"{name: r"+afterB, 1)
	usesIt := using("c", "web", "", card, "")
	for name, c := range map[string]struct {
		in   string
		want []string
	}{
		"a card that a held claim needs": {
			both(2) + gpu("a", 100, expects("1h")) + claims("b", "cards-2", "") + gpu("c", 100, ""), waits,
		},
		"a share of a card that a held claim needs": {
			both(2) + gpu("a", 100, expects("1h")) + claims("b", "cards-2", "") + gpu("c", 50, ""), waits,
		},
		"a card that a held claim leaves": {
			both(3) + gpu("a", 200, expects("1h")) + claims("b", "cards-2", "") + gpu("c", 100, ""), now,
		},
		"a card that a held claim needs of one that ends": {
			both(2) + claims("a", "cards-1", expects("1h")) + claims("b", "cards-2", "") + gpu("c", 100, ""), waits,
		},
		"a claim of a card that a held pod needs": {
			both(2) + gpu("a", 100, expects("1h")) + gpu("b", 200, "") + claims("c", "cards-1", ""), waits,
		},
		"a claim of a card that a held pod leaves": {
			both(3) + gpu("a", 200, expects("1h")) + gpu("b", 200, "") + claims("c", "cards-1", ""), now,
		},
		"a claim of a card that a held pod needs of a claim that ends": {
			both(2) + claims("a", "cards-1", expects("1h")) + gpu("b", 200, "") + claims("c", "cards-1", ""), waits,
		},
		"a card of a gang with both": {
			both(3) + gpu("a", 100, expects("1h")) + gpu("old", 100, "") + gpu("b0", 100, says("b", 2)) +
				claims("b1", "cards-1", says("b", 2)) + gpu("c", 50, ""),
			[]string{hold, "0s Started old", ended, heldStarts + "0", heldStarts + "1"},
		},
		"a Reservation of a card that a held claim needs": {
			both(2) + gpu("a", 100, expects("1h")) + claims("b", "cards-2", "") + reserved + usesIt, waits,
		},
		"a Reservation of a card that a held claim leaves": {
			both(3) + gpu("a", 200, expects("1h")) + claims("b", "cards-2", "") + reserved + usesIt, now,
		},
		"a Reservation of a card that came before a held claim": {
			both(3) + reservationFor("r", "web", "a: b", card, "") + gpu("a", 100, expects("1h")) +
				claims("b", "cards-2", "") + usesIt, now,
		},
		"extended resources of a gang that a held claim needs": {
			many(3) + gpu("a", 100, expects("1h")) + claims("b", "cards-3", "") + member("c0") + member("c1"), waits,
		},
		"extended resources of a gang that a held claim leaves": {
			many(5) + gpu("a", 300, expects("1h")) + claims("b", "cards-3", "") + member("c0") + member("c1"),
			[]string{hold, "0s Started c0", "0s Started c1", ended, heldStarts},
		},
		"an extended resource of a card that a held pod needs": {
			both(2) + mapped + gpu("a", 100, expects("1h")) + gpu("b", 200, "") + asks("c", 1), waits,
		},
		"an extended resource of a card that a held pod leaves": {
			both(3) + mapped + gpu("a", 200, expects("1h")) + gpu("b", 200, "") + asks("c", 1), now,
		},
		"an extended resource of a card that a held claim needs": {
			both(2) + mapped + gpu("a", 100, expects("1h")) + claims("b", "cards-2", "") + asks("c", 1), waits,
		},
		"a claim of a card that a held pod with an extended resource needs": {
			both(2) + mapped + gpu("a", 100, expects("1h")) + asks("b", 2) + claims("c", "cards-1", ""), waits,
		},
		"CPUs beside cards that are held": {
			both(2) + gpu("a", 100, expects("1h")) + claims("b", "cards-2", "") + shared("c", "1", "", ""), now,
		},
		"enough": {plain("w", 8) + a("4") + shared("b", "6", "", "") + shared("c", "2", "", ""), now},
		"too little": {
			plain("w", 8) + a("4") + shared("b", "6", "", "") + shared("c", "3", "", ""), waits,
		},
		"enough, but not now": {
			plain("w", 8) + a("6") + shared("b", "5", "", "") + shared("c", "3", "", ""), at("1h0m0s"),
		},
		"enough, and it outlives the start": {
			plain("w", 8) + a("4") + shared("b", "6", "", "") + shared("c", "2", expects("90m"), ""),
			append(slices.Clone(now), "1h30m0s Ended c"),
		},
		"a claim that the held one has not": {
			cards(1) + plain("w", 8) + a("4") + shared("b", "6", "", "") + claims("c", "own", ""), now,
		},
		"a held claim": {
			cards(1) + plain("w", 8) + a("4") + shared("b", "6", "", ", resourceClaims: ["+ownClaim+"]") +
				shared("c", "2", "", ""), now,
		},
		"a device that is left": {
			cards(3) + plain("w", 8) + claims("a", "own", expects("1h")) + claims("old", "own", "") +
				claims("b", "two", "") + claims("c", "own", ""), []string{hold, "0s Started old", ended, heldStarts},
		},
		"devices that the held one leaves": {
			cards(4) + plain("w", 8) + claims("a", "two", expects("1h")) + claims("old", "own", "") +
				claims("b", "two", "") + claims("c", "own", ""),
			[]string{hold, "0s Started old", "0s Started c", ended, heldStarts},
		},
		"devices of a gang": {
			cards(3) + plain("w", 8) + claims("a", "own", expects("1h")) + claims("old", "own", "") +
				claims("b0", "own", says("b", 2)) + claims("b1", "own", says("b", 2)) + claims("c", "own", ""),
			[]string{hold, "0s Started old", ended, heldStarts + "0", heldStarts + "1"},
		},
		"a device that it gives back in time": {
			cards(2) + plain("w", 8) + claims("a", "own", expects("1h")) + claims("b", "two", "") +
				claims("c", "own", expects("30m")),
			[]string{hold, "0s Started c", "30m0s Ended c", ended, heldStarts},
		},
		"a port that the held one needs": {
			plain("w", 8) + a("4") + strings.Replace(shared("b", "6", "", ""), "image: i", port, 1) +
				strings.Replace(shared("c", "1", "", ""), "image: i", port, 1), waits,
		},
		"exclusive CPUs that are left": {
			machine("n0") + lsr("a", 20, expects("1h")) + lsr("b", 22, "") + lsr("c", 8, ""), now,
		},
		"too few exclusive CPUs": {
			machine("n0") + lsr("a", 20, expects("1h")) + lsr("b", 22, "") + lsr("c", 10, ""), waits,
		},
		"exclusive CPUs, and the held one must be on one NUMA node": {
			machine("n0") + lsr("a", 20, expects("1h")) + lsr("b", 16, alone) + lsr("c", 8, ""), now,
		},
		"exclusive CPUs beside the NUMA node that the held one needs": {
			machine("n0") + lsr("a", 10, expects("1h")) + lsr("old", 4, "") + lsr("b", 16, alone) + lsr("c", 6, ""),
			[]string{hold, "0s Started old", "0s Started c", ended, heldStarts},
		},
		"threads of cores that the held one does not need": {
			machine("n0") + lsr("a", 20, expects("1h")) + lsr("b", 20, bind("FullPCPUs")) +
				lsr("c", 6, bind("SpreadByPCPUs")), now,
		},
		"threads of cores that the held one needs": {
			machine("n0") + lsr("a", 20, expects("1h")) + lsr("b", 22, bind("FullPCPUs")) +
				lsr("c", 6, bind("SpreadByPCPUs")),
			waits,
		},
		"a GPU that is left": {
			gpuNode("n0", 16, 4) + gpu("a", 300, expects("1h")) + gpu("b", 300, "") + gpu("c", 100, ""), now,
		},
		"a share of a GPU, whose rest the held one cannot use": {
			gpuNode("n0", 16, 4) + gpu("a", 300, expects("1h")) + gpu("b", 400, "") + gpu("c", 50, ""), waits,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := passing(t, c.in, Until{After: 2 * time.Hour})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// uuids are attributes of n devices that name the cards GPU-0, GPU-1 …
func uuids(n int) (attributes []string) {
	for i := range n {
		attributes = append(attributes, fmt.Sprintf("uuid: {string: GPU-%d}", i))
	}
	return attributes
}

const port = "image: i, ports: [{containerPort: 80, hostPort: 80}]"

// heldStart returns when the pod held starts, which comes at the first minute beside so many pods old…; "" if it needs
// not wait, never starts, or is not the first to wait.
func heldStart(t *testing.T, in string, olds int) (start string) {
	t.Helper()
	_, lines := passing(t, in, Until{After: 3 * time.Hour})
	placed := 0
	for _, line := range lines {
		if strings.HasPrefix(line, "0s Started old") {
			placed++
		}
	}
	if start = startOf(lines, "held"); start == "1m0s" || placed < olds {
		return ""
	}
	return start
}

// TestNoPodDelaysAHeldOne: a node with exclusive CPUs and GPUs, or with devices for claims, some pods that run for as
// long as they declare or for ever, and one that waits for them. Whatever comes behind it, and however long that runs,
// it starts at the same time.
func TestNoPodDelaysAHeldOne(t *testing.T) {
	t.Parallel()
	var gpus []string
	for i := range 4 {
		gpus = append(gpus, fmt.Sprintf("{type: gpu, id: GPU-%d, minor: %[1]d, health: true, resources: "+
			"{koordinator.sh/gpu-core: 100, koordinator.sh/gpu-memory: 80Gi}}", i))
	}
	node := machine("n0") + "\n" + strings.Replace(deviceOf("n0", strings.Join(gpus, ", ")), "labels:",
		"annotations: {node.tenon.sh/device-mode: Own}, labels:", 1) + "\n---"
	for name, c := range map[string]struct {
		node string
		draw func(r *rand.Rand, name string, minute, size int, runs []string) string
	}{
		"CPUs and GPUs": {node, drawn}, "claims": {modelsOf("n0") + plain("n0", 64), drawnClaims},
		"cards of both": {
			cpuNode("host", 64) + listed(10) + published(uuids(10)...) + cardTemplates(5), drawnCards,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noPodDelays(t, c.node, c.draw)
		})
	}
}

func noPodDelays(t *testing.T, node string, draw func(*rand.Rand, string, int, int, []string) string) {
	t.Helper()
	held, beside := 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 63))
		in := node
		olds := 3 + r.IntN(5)
		for i := range olds {
			in += draw(r, fmt.Sprint("old", i), 0, 2, []string{"", "20m", "40m", "1h"})
		}
		in += draw(r, "held", 1, 3, []string{"", "30m"})
		start := heldStart(t, in, olds)
		if start == "" {
			continue
		}
		held++
		for i := range 8 {
			in += draw(r, fmt.Sprint("young", i), 2+r.IntN(30), 1, []string{"", "5m", "20m", "2h"})
		}
		_, all := passing(t, in, Until{After: 3 * time.Hour})
		if got := startOf(all, "held"); got != start {
			t.Errorf("seed %d: alone it starts at %s, beside others at %q:\n%s\nof\n%s", seed, start, got,
				strings.Join(all, "\n"), in)
		}
		before := slices.Index(all, start+" Started held")
		for _, line := range all[:max(before, 0)] {
			_, name, ok := strings.Cut(line, "Started young")
			ended := func(l string) bool { return strings.HasSuffix(l, "Ended young"+name) }
			if ok && !slices.ContainsFunc(all[:before], ended) {
				beside++
			}
		}
	}
	t.Logf("%d pods were held, and %d started before and ran beside them", held, beside)
	if held < 10 || beside < 5 {
		t.Errorf("%d pods were held, and %d started before and ran beside them", held, beside)
	}
}

// modelsOf is a node's devices of two models, and templates of claims for some.
func modelsOf(node string) string {
	var devices []string
	for i, model := range "aaaabbbbbb" {
		devices = append(devices, fmt.Sprintf("{name: d%d, attributes: {model: {string: %c}}}", i, model))
	}
	in := fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceSlice, metadata: {name: %s}, spec: "+
		"{driver: x, nodeName: %[1]s, pool: {name: %[1]s, generation: 1, resourceSliceCount: 1}, devices: [%s]}}\n"+
		"---\n%s\n---", node, strings.Join(devices, ", "), classes)
	for model, selectors := range map[string]string{
		"any": "", "a": `, selectors: [{cel: {expression: "device.attributes['x'].model == 'a'"}}]`,
		"b": `, selectors: [{cel: {expression: "device.attributes['x'].model == 'b'"}}]`,
	} {
		for count := 1; count <= 5; count++ {
			in += fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: %s-%d}"+
				", spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card, count: %[2]d%s}}]}}}}"+
				"\n---", model, count, selectors)
		}
	}
	return in
}

// drawnClaims is a pod that asks for devices of a model or of any, and comes at a minute.
func drawnClaims(r *rand.Rand, name string, minute, size int, runs []string) string {
	run := runs[r.IntN(len(runs))]
	if run != "" {
		run = "tenon.sh/expected-runtime: " + run
	}
	template := fmt.Sprintf("%s-%d", []string{"any", "any", "a", "b"}[r.IntN(4)], 1+r.IntN(size)+2*(size/3))
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {koordinator.sh/qosClass: LS}, "+
		"annotations: {%s}, creationTimestamp: \"2000-01-01T00:%02d:00Z\"}, spec: {resourceClaims: [{name: o, "+
		"resourceClaimTemplateName: %s}], containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: "+
		"64Mi}}}]}}\n---", name, run, minute, template)
}

// cardTemplates are templates of claims of 1 to n cards: cards-1, cards-2 …
func cardTemplates(n int) (in string) {
	for count := 1; count <= n; count++ {
		in += fmt.Sprintf("\n{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: "+
			"cards-%d}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: card, count: "+
			"%[1]d}}]}}}}\n---", count)
	}
	return in
}

// drawnCards is a pod that asks for cards by a claim, without one, or in both ways, and comes at a minute.
func drawnCards(r *rand.Rand, name string, minute, size int, runs []string) string {
	run, claims, limits := runs[r.IntN(len(runs))], "", "cpu: 1, memory: 64Mi"
	if run != "" {
		run = "tenon.sh/expected-runtime: " + run
	}
	kind := r.IntN(5)
	if kind < 3 {
		claims = fmt.Sprintf("{name: o, resourceClaimTemplateName: cards-%d}", 1+r.IntN(size)+2*(size/3))
	}
	if kind >= 2 {
		limits += fmt.Sprintf(", koordinator.sh/gpu: %d", []int{50, 100, 200, 300, 400}[r.IntN(2+size)])
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {koordinator.sh/qosClass: LS}, "+
		"annotations: {%s}, creationTimestamp: \"2000-01-01T00:%02d:00Z\"}, spec: {resourceClaims: [%s], containers: "+
		"[{name: c, image: i, resources: {limits: {%s}}}]}}\n---", name, run, minute, claims, limits)
}

// drawn is a pod that asks for exclusive CPUs, of one NUMA node or of any, for GPUs or for neither, and comes at a
// minute.
func drawn(r *rand.Rand, name string, minute, size int, runs []string) string {
	annotations := []string{}
	if d := runs[r.IntN(len(runs))]; d != "" {
		annotations = append(annotations, "tenon.sh/expected-runtime: "+d)
	}
	class, limits := "LS", fmt.Sprintf("cpu: %d, memory: 64Mi", size*(1+r.IntN(4)))
	switch r.IntN(4) {
	case 0:
		class, limits = "LSR", fmt.Sprintf("cpu: %d, memory: 64Mi", size*2*(1+r.IntN(4)))
	case 1:
		class, limits = "LSR", fmt.Sprintf("cpu: %d, memory: 64Mi", min(16, size*2*(1+r.IntN(4))))
		annotations = append(annotations, `scheduling.koordinator.sh/numa-topology-spec: `+
			`'{"numaTopologyPolicy":"SingleNUMANode"}'`)
	case 2:
		limits += fmt.Sprintf(", koordinator.sh/gpu: %d", []int{50, 100, 200, 300, 400}[r.IntN(2+size)])
	}
	return fmt.Sprintf("\n{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {koordinator.sh/qosClass: %s}, "+
		"annotations: {%s}, creationTimestamp: \"2000-01-01T00:%02d:00Z\"}, spec: {containers: [{name: c, image: i, "+
		"resources: {limits: {%s}}}]}}\n---", name, class, strings.Join(annotations, ", "), minute, limits)
}

// startOf is when a pod starts in what happens; "" for never.
func startOf(lines []string, name string) string {
	for _, line := range lines {
		if at, ok := strings.CutSuffix(line, " Started "+name); ok {
			return at
		}
	}
	return ""
}

// TestWhatAPodLeavesCountsAlsoIfItStartsLater: a pod is bound, and its kubelet starts it five seconds later than was
// known when another one got its promise. A third pod may use what these two leave as before.
func TestWhatAPodLeavesCountsAlsoIfItStartsLater(t *testing.T) {
	l := newHolding(t, cpuNode("n0", 8))
	l.pod("old", 4, runsFor("1h"))
	l.runUntilIdle()
	l.update("old", func(p *corev1.Pod) { p.Status.StartTime = nil })
	l.pod("held", 6)
	l.runUntilIdle()
	l.pass(5 * time.Second)
	l.update("old", func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: l.time.at} })
	l.pod("beside", 2)
	l.pod("behind", 3)
	l.runUntilIdle()
	if !l.started("beside") || l.started("behind") || l.started("held") {
		t.Errorf("beside started: %t, behind: %t, held: %t; held are %+v", l.started("beside"), l.started("behind"),
			l.started("held"), kube.Ask(l.gangs, (*gang.State).Holds))
	}
}

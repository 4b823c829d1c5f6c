package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/why"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// kueue stands in for Kueue: it puts gates on pods, takes them away with a selector of a node, and evicts.
type kueue struct{ *live }

// held puts a gate of Kueue on a pod that is created.
func held(gate string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels["kueue.x-k8s.io/podset"] = "main"
		p.Annotations["kueue.x-k8s.io/podset-required-topology"] = corev1.LabelHostname
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
}

// plainGroup makes a pod one of a plain pod group.
func plainGroup(name string, total int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Labels[annotation.KueueGroup] = name
		p.Annotations[annotation.KueueGroupTotal] = fmt.Sprint(total)
	}
}

// admit takes a gate from a pod, and lets it onto one node alone if a node is given.
func (k kueue) admit(name, gate, node string) {
	k.Helper()
	o, found, _ := k.api.pods.GetStore().GetByKey("default/" + name)
	if !found {
		k.Fatalf("pod %s does not exist", name)
	}
	now := o.(*corev1.Pod).DeepCopy()
	now.Spec.SchedulingGates = slices.DeleteFunc(now.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool {
		return g.Name == gate
	})
	if node != "" {
		now.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	k.api.update(o.(*corev1.Pod), now)
}

// evict deletes all pods whose names begin so, as the controller of a suspended job does.
func (k kueue) evict(prefix string) {
	for _, o := range k.api.pods.GetStore().List() {
		if p := o.(*corev1.Pod); strings.HasPrefix(p.Name, prefix) {
			k.api.remove(p)
		}
	}
}

// expect runs the scheduler, and compares the names and nodes of placed pods.
func (k kueue) expect(when string, want ...string) {
	k.Helper()
	k.runUntilIdle()
	got := []string{}
	for _, p := range k.on("") {
		got = append(got, p.Name+" "+p.Spec.NodeName)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		k.Errorf("%s: placed %v, want %v", when, got, want)
	}
}

const (
	admissionGate = "kueue.x-k8s.io/admission"
	topologyGate  = "kueue.x-k8s.io/topology"
)

// TestAGangStartsWhenKueueHasRemovedTheLastGate: Kueue takes the gates away pod by pod, with a node for each. No member
// starts before the last one may.
func TestAGangStartsWhenKueueHasRemovedTheLastGate(t *testing.T) {
	spread := []string{"n1", "n0", "n1"}
	for name, c := range map[string]struct {
		gates []string
		gang  func(*corev1.Pod)
		nodes []string // those that Kueue chooses
	}{
		"the gate of topology":              {[]string{topologyGate}, inGangOf("g", 3), spread},
		"the gate of admission":             {[]string{admissionGate}, inGangOf("g", 3), []string{"", "", ""}},
		"both gates":                        {[]string{admissionGate, topologyGate}, inGangOf("g", 3), spread},
		"a plain pod group":                 {[]string{admissionGate}, plainGroup("g", 3), []string{"", "", ""}},
		"a plain pod group with a topology": {[]string{topologyGate}, plainGroup("g", 3), []string{"n0", "n1", "n1"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := kueue{newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))}
			for i := range 3 {
				options := []func(*corev1.Pod){c.gang}
				for _, gate := range c.gates {
					options = append(options, held(gate))
				}
				k.pod(fmt.Sprint("g", i), 2, options...)
			}
			k.expect("with all gates")
			for _, gate := range c.gates {
				for i := range 3 {
					node := c.nodes[i]
					if gate == admissionGate {
						node = ""
					}
					k.expect(fmt.Sprintf("before g%d loses %s", i, gate))
					if r := k.why("g"); i > 0 && gate == c.gates[len(c.gates)-1] &&
						(r.Code != why.GangGated || r.Gated != 3-i || r.Text != gate) {
						t.Errorf("with %d of 3 admitted it waits by %+v", i, r)
					}
					k.admit(fmt.Sprint("g", i), gate, node)
				}
			}
			k.runUntilIdle()
			if on := k.on("g"); len(on) != 3 {
				t.Fatalf("without gates %d members have a node: %+v", len(on), k.why("g"))
			}
			for i, p := range k.on("g") {
				if want := c.nodes[i]; want != "" && p.Spec.NodeName != want {
					t.Errorf("%s is on %s, Kueue chose %s", p.Name, p.Spec.NodeName, want)
				}
			}
		})
	}
}

// TestANodeThatKueueChoseAndTheSchedulerRefuses: no member starts, also where other nodes have room. Kueue evicts the
// job and chooses again.
func TestANodeThatKueueChoseAndTheSchedulerRefuses(t *testing.T) {
	k := kueue{newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))}
	for i := range 2 {
		k.pod(fmt.Sprint("g", i), 3, inGangOf("g", 2), held(topologyGate))
	}
	k.admit("g0", topologyGate, "n0")
	k.admit("g1", topologyGate, "n0")
	k.expect("with room for one of two on the node")
	k.evict("g")
	for i := range 2 {
		k.pod(fmt.Sprint("again", i), 3, inGangOf("g", 2), held(topologyGate))
		k.admit(fmt.Sprint("again", i), topologyGate, fmt.Sprint("n", i))
	}
	k.expect("on two nodes", "again0 n0", "again1 n1")
}

// TestKueueEvictsAGangThatComesBack: Kueue preempts a job for another one. Its gang is made again, waits while the room
// is used, and starts as a whole.
func TestKueueEvictsAGangThatComesBack(t *testing.T) {
	for name, gang := range map[string]func(name string) func(*corev1.Pod){
		"a gang":            func(name string) func(*corev1.Pod) { return inGangOf(name, 2) },
		"a plain pod group": func(name string) func(*corev1.Pod) { return plainGroup(name, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			k := kueue{newLive(t, cpuNode("n0", 4)+cpuNode("n1", 4))}
			job := func(prefix, in string) {
				k.pod(prefix+"0", 3, gang(in))
				k.pod(prefix+"1", 3, gang(in))
			}
			job("low", "low")
			k.expect("the first job", "low0 n0", "low1 n1")
			job("high", "high")
			k.expect("the first job has the room", "low0 n0", "low1 n1")
			k.evict("low")
			k.expect("Kueue has evicted it", "high0 n0", "high1 n1")
			job("new", "low") // the same gang, other pods
			k.expect("resumed too early", "high0 n0", "high1 n1")
			k.end("high")
			k.expect("with room for one member", "high1 n1")
			k.end("high")
			k.expect("with room for both", "new0 n0", "new1 n1")
		})
	}
}

// TestPartialAdmissionMakesAGangSmaller: Kueue admits 2 of 3 pods, and the PodGroup has the new minimum.
func TestPartialAdmissionMakesAGangSmaller(t *testing.T) {
	member := testobject.Label(annotation.PodGroup, "j")
	group := func(least int) string {
		return fmt.Sprintf("\n{apiVersion: scheduling.sigs.k8s.io/v1alpha1, kind: PodGroup, metadata: {name: j}, "+
			"spec: {minMember: %d}}\n---", least)
	}
	for least, want := range map[int][]string{3: {}, 2: {"j0 n0", "j1 n1"}} {
		k := kueue{newLive(t, group(least)+cpuNode("n0", 4)+cpuNode("n1", 4))}
		for i := range 2 {
			k.pod(fmt.Sprint("j", i), 3, member)
		}
		k.expect(fmt.Sprintf("with a minimum of %d", least), want...)
	}
}

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
)

// slots are a resource of this test alone. Each unit has an id, a NUMA node and 100 shares, of which pods hold any
// part; but the units of a NUMA node belong to one pod.
type slots struct{}

const (
	slot      = "example.com/slot"
	slotsHere = "example.com/slots" // of a NodeResourceTopology: its units
	slotsHeld = "example.com/held"  // of a pod: what it got
)

func (slots) Room(units, held []align.Amount) int64 {
	if len(held) > 0 {
		return 0
	}
	room := int64(0)
	for _, u := range units {
		room += u.N
	}
	return room
}

func (slots) Choose(units, _ []align.Amount, n int64) []align.Amount {
	var chosen []align.Amount
	for _, u := range units {
		if u.N = min(u.N, n); u.N > 0 {
			chosen, n = append(chosen, u), n-u.N
		}
	}
	return chosen
}

func (slots) Of(s convert.Sources) []align.Amount {
	var units []align.Amount
	for _, text := range strings.Fields(s.Topology.Annotations[slotsHere]) {
		u := align.Amount{Resource: slot, N: 100}
		if _, err := fmt.Sscanf(text, "%d/%s", &u.NUMAID, &u.Unit); err == nil {
			units = append(units, u)
		}
	}
	return units
}

func (slots) HeldBy(pod *corev1.Pod) (held []align.Amount) {
	_ = json.Unmarshal([]byte(pod.Annotations[slotsHeld]), &held)
	return held
}

func (slots) Record(held []align.Amount) (key, value string) {
	text, _ := json.Marshal(held)
	return slotsHeld, string(text)
}

// slotsOn is a machine of two NUMA nodes: slots a and b on the first, c on the second.
const slotsOn = `{apiVersion: v1, kind: Node, metadata: {name: n0, labels: {
  node.koordinator.sh/numa-topology-policy: SingleNUMANode}},
  status: {capacity: {cpu: 8, memory: 8Gi, pods: 10, example.com/slot: 300}}}
---
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata:
  name: n0
  annotations:
    example.com/slots: 0/a 0/b 1/c
    node.koordinator.sh/cpu-topology: '{"detail":[{"id":0,"core":0,"socket":0,"node":0},
      {"id":1,"core":1,"socket":0,"node":0},{"id":2,"core":2,"socket":0,"node":0},{"id":3,"core":3,"socket":0,"node":0},
      {"id":4,"core":4,"socket":0,"node":1},{"id":5,"core":5,"socket":0,"node":1},{"id":6,"core":6,"socket":0,"node":1},
      {"id":7,"core":7,"socket":0,"node":1}]}'
zones: [{name: node-0, type: Node}, {name: node-1, type: Node}]
`

func slotPod(name string, shares int, more string) string {
	return fmt.Sprintf(`---
{apiVersion: v1, kind: Pod, metadata: {name: %s, uid: %s, labels: {koordinator.sh/qosClass: LSR}%s
  containers: [{name: c, image: i, resources: {limits: {cpu: 1, memory: 1Gi, example.com/slot: %d}}}]}}
`, name, name, more, shares)
}

const pending = "}, spec: {"

// simulateSlots decides about manifests where slots have rows; it returns the engine too.
func simulateSlots(t *testing.T, table *convert.Resources, manifests ...string) (map[string]Pod, *engine) {
	t.Helper()
	docs, err := readDocuments([]string{"-"}, strings.NewReader(strings.Join(manifests, "")), io.Discard)
	testkit.Check(t, err)
	w, err := Input{Warn: io.Discard}.readWorld(docs)
	testkit.Check(t, err)
	w.resources = table
	e, err := newEngine(withoutLog(t.Context()), w)
	testkit.Check(t, err)
	r, err := e.decide(t.Context(), w, io.Discard)
	testkit.Check(t, err)
	pods := map[string]Pod{}
	for _, p := range r.Pods {
		pods[p.Name] = p
	}
	return pods, e
}

// TestResourceOfATable takes a resource that only a table names through conversion, account, search and simulation: no
// type of theirs knows it.
func TestResourceOfATable(t *testing.T) {
	kind := align.Kind{Resource: slot, Page: 10, Unit: why.Percent, Short: why.InsufficientExtended, Chooser: slots{}}
	table := &convert.Resources{Kinds: align.Table{kind}, Units: map[why.Resource]convert.Units{slot: slots{}}}
	pods, e := simulateSlots(t, table, slotsOn, slotPod("p1", 150, pending), slotPod("p2", 50, pending),
		slotPod("p3", 10, pending))
	type result struct {
		State, CPUs, Held string
		Reasons           []Reason
	}
	got := map[string]result{}
	for name, p := range pods {
		got[name] = result{p.State, p.CPUSet, p.Annotations[slotsHeld], p.Reasons}
	}
	const a = `[{"NUMAID":0,"Resource":"example.com/slot","Unit":"a","N":100},` +
		`{"NUMAID":0,"Resource":"example.com/slot","Unit":"b","N":50}]`
	want := map[string]result{
		"p1": {Scheduled, "0", a, []Reason{}},
		"p2": {Scheduled, "4", `[{"NUMAID":1,"Resource":"example.com/slot","Unit":"c","N":50}]`, []Reason{}},
		"p3": {State: Unschedulable, Reasons: pods["p3"].Reasons},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("pods (-want +got):\n%s", diff)
	}
	if r := pods["p3"].Reasons; len(r) == 0 || r[0].Code != why.InsufficientExtended {
		t.Errorf("p3 is refused for %+v, want %v", r, why.InsufficientExtended)
	}

	// A pod that runs already holds what its annotation says: an account rebuilt from it equals the live one.
	bound := fmt.Sprintf(`, annotations: {example.com/held: '%s', scheduling.koordinator.sh/resource-status:
  '{"cpuset":"0"}'}}, spec: {nodeName: n0,`, a)
	after, rebuilt := simulateSlots(t, table, slotsOn, slotPod("p1", 150, bound), slotPod("p2", 50, pending))
	if p := after["p2"]; p.Annotations[slotsHeld] != want["p2"].Held {
		t.Errorf("p2 beside a bound p1 holds %q", p.Annotations[slotsHeld])
	}
	if v := rebuilt.store.View("n0"); !v.Equal(e.store.View("n0")) {
		t.Errorf("the account rebuilt differs: %+v, live %+v", v.Summary().Rows, e.store.View("n0").Summary().Rows)
	}

	// No unit is given twice, whatever an offer says.
	l := ledger.New(*e.store.View("n0").Facts())
	r := place.Request{UID: "p", CPUs: 1, Role: qos.Exclusive, Needs: []align.Need{{Resource: slot, N: 150}}}
	offer, reason := place.Try(l.View(), &r)
	if !reason.OK() {
		t.Fatal(reason)
	}
	offer.Entry.Amounts[0].N, offer.Entry.Amounts[1].N = 101, 49
	if err := l.Commit(offer); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("101 shares of a unit of 100: %v, want %v", err, ledger.ErrTaken)
	}
}

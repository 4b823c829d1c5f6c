package journal

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// course makes records, one a second after the one before.
type course struct {
	t       *testing.T
	records []*Record
}

func (c *course) add(r Record) {
	r.Time = start.Add(time.Duration(len(c.records)) * time.Second)
	c.records = append(c.records, &r)
}

func (c *course) snapshot(objects int, reserved ...Decision) {
	c.add(Record{Type: SnapshotType, Snapshot: &Snapshot{
		Version: Version, Config: []byte(`{}`), Objects: objects, Reserved: reserved,
	}})
}

func (c *course) event(op string, o Object) {
	c.t.Helper()
	e, err := Encode(op, o)
	testkit.Check(c.t, err)
	c.add(Record{Type: EventType, Event: e})
}

func (c *course) pod(op, name, uid string, options ...object.PodOption) {
	c.t.Helper()
	c.event(op, object.Pod(name, append([]object.PodOption{object.UID(uid), object.Both("cpu", "2")}, options...)...))
}

func (c *course) decide(name, node, refused string) {
	c.add(Record{Type: DecisionType, Decision: &Decision{
		Pod: "default/" + name, UID: name, Node: node, Refused: refused, Feasible: 1, Of: 2,
	}})
}

func (c *course) released(op, uid string) {
	c.add(Record{Type: EventType, Event: &Event{Op: op, Kind: "Pod", UID: uid}})
}

func disrupted(reason string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason,
		})
	}
}

// stays writes when each pod came to a node and left it, in seconds, and refusals.
func stays(p *view.Past) (out []string) {
	second := func(at time.Time) string {
		if at.IsZero() {
			return ""
		}
		return at.Sub(start).String()
	}
	for _, s := range p.Pods {
		text := strings.TrimPrefix(s.Pod, "default/") + " " + s.Node + " " + second(s.From) + "-" + second(s.To)
		if s.Of > 0 {
			text += " decided"
		}
		out = append(out, strings.TrimSpace(text+" "+s.Why))
	}
	for _, r := range p.Refused {
		out = append(out, strings.TrimPrefix(r.Pod, "default/")+" refused "+second(r.Time)+": "+r.Why)
	}
	return out
}

func TestThePastOfPods(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(*course)
		want []string
	}{
		"decided, then bound": {func(c *course) {
			c.decide("a", "n", "")
			c.pod(Put, "a", "a", object.On("n"))
		}, []string{"a n 3s- decided"}},
		"bound by another scheduler": {func(c *course) { c.pod(Put, "a", "a", object.On("n")) }, []string{"a n 3s-"}},
		"decided, then not bound after all": {func(c *course) {
			c.decide("a", "n", "")
			c.released(Release, "a")
		}, []string{"a n 3s-4s decided"}},
		"deleted before it was bound": {func(c *course) {
			c.decide("a", "n", "")
			c.released(Forget, "a")
			c.pod(Delete, "a", "a")
		}, []string{"a n 3s-4s decided"}},
		"bound elsewhere than decided": {func(c *course) {
			c.decide("a", "n", "")
			c.pod(Put, "a", "a", object.On("m"))
		}, []string{"a n 3s-4s decided", "a m 4s-"}},
		"it succeeds": {func(c *course) {
			c.decide("a", "n", "")
			c.pod(Put, "a", "a", object.On("n"), object.Phase(corev1.PodSucceeded))
		}, []string{"a n 3s-4s decided"}},
		"it fails": {func(c *course) {
			c.decide("a", "n", "")
			c.pod(Put, "a", "a", object.On("n"), object.Phase(corev1.PodFailed))
		}, []string{"a n 3s-4s decided"}},
		"it was preempted": {func(c *course) {
			c.pod(Put, "a", "a", object.On("n"))
			c.pod(Change, "a", "a", object.On("n"), disrupted("PreemptionByScheduler"))
			c.pod(Delete, "a", "a")
		}, []string{"a n 3s-5s PreemptionByScheduler"}},
		"another one has its name": {func(c *course) {
			c.pod(Put, "a", "a", object.On("n"))
			c.pod(Put, "a", "later", object.On("m"))
			c.pod(Delete, "a", "a")
		}, []string{"a n 3s-4s", "a m 4s-"}},
		"refused twice for one reason, then for another": {func(c *course) {
			c.decide("a", "", "no CPU")
			c.decide("a", "", "no CPU")
			c.decide("a", "", "no GPU")
			c.decide("a", "n", "")
		}, []string{"a n 6s- decided", "a refused 3s: no CPU", "a refused 5s: no GPU"}},
		"refused again after it had a node": {func(c *course) {
			c.decide("a", "", "no CPU")
			c.decide("a", "n", "")
			c.released(Release, "a")
			c.decide("a", "", "no CPU")
		}, []string{"a n 4s-5s decided", "a refused 3s: no CPU", "a refused 6s: no CPU"}},
		"a pod that is not known": {func(c *course) { c.decide("reserve", "n", "") }, nil},
	} {
		c := course{t: t}
		c.snapshot(2)
		c.event(Put, object.Node("n", nil, "cpu", "8"))
		c.pod(Put, "a", "a")
		test.make(&c)
		past, err := PastOf("f", bytes.NewReader(lines(t, c.records...)))
		testkit.Check(t, err)
		if diff := cmp.Diff(test.want, stays(&past)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestThePastBeginsWithTheSnapshot: pods with a node, and pods that are reserved, are there from the first record on.
func TestThePastBeginsWithTheSnapshot(t *testing.T) {
	t.Parallel()
	c := course{t: t}
	c.snapshot(3, Decision{Pod: "default/b", UID: "b", Node: "n", Feasible: 1, Of: 2})
	c.event(Put, object.Node("n", nil, "cpu", "8"))
	c.pod(Put, "a", "a", object.On("n"), object.Gang("g", "1"))
	c.pod(Put, "b", "b")
	for _, record := range c.records {
		record.Time = start
	}
	whole := lines(t, c.records...)
	past, err := PastOf("f", bytes.NewReader(whole))
	testkit.Check(t, err)
	want := view.Past{
		File: "f", From: start, To: start, Refused: []view.PastRefusal{},
		Nodes: []view.PastNode{{Node: "n", MilliCPU: 8000, From: start}},
		Pods: []view.PastPod{
			{Pod: "default/a", Node: "n", Gang: "default/g", MilliCPU: 2000, From: start},
			{Pod: "default/b", Node: "n", MilliCPU: 2000, From: start, Feasible: 1, Of: 2},
		},
	}
	if diff := cmp.Diff(want, past); diff != "" {
		t.Error(diff)
	}
	_, err = PastOf("f", bytes.NewReader(whole[:len(whole)-9]))
	if err == nil || !strings.Contains(err.Error(), "f: line 4") {
		t.Errorf("a file that is cut: %v", err)
	}
}

// TestThePastOfNodes: one that was deleted and made again is there twice. Times are rounded up to milliseconds.
func TestThePastOfNodes(t *testing.T) {
	t.Parallel()
	c := course{t: t}
	c.snapshot(0)
	c.event(Put, object.Node("n", nil, "cpu", "8"))
	c.event(Put, object.Node("n", nil, "cpu", "16"))
	c.event(Delete, object.Node("n", nil))
	c.event(Delete, object.Node("n", nil))
	c.event(Put, object.Node("n", nil, "cpu", "4"))
	c.records[1].Time = c.records[1].Time.Add(time.Nanosecond)
	past, err := PastOf("f", bytes.NewReader(lines(t, c.records...)))
	testkit.Check(t, err)
	want := []view.PastNode{
		{Node: "n", MilliCPU: 16000, From: start.Add(time.Second + time.Millisecond), To: start.Add(3 * time.Second)},
		{Node: "n", MilliCPU: 4000, From: start.Add(5 * time.Second)},
	}
	if diff := cmp.Diff(want, past.Nodes); diff != "" {
		t.Error(diff)
	}
}

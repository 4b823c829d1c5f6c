package view_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// TestAGangHasTheKeysOfTheSeed: with one member that waits, one that was tried, and the deadline.
func TestAGangHasTheKeysOfTheSeed(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	created := time.Unix(1e9, 0).UTC()
	for _, uid := range []string{"p1", "p2", "p3"} {
		s.Put(gang.Pod{
			UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Created: created,
			Settings: gang.Settings{Min: 3, Mode: gang.NonStrict, Wait: time.Minute},
		})
	}
	s.Place("p1", created)
	s.Fail("p2", why.Finding{}, time.Time{})
	text, err := json.Marshal(view.GangOf(s, "ns/g"))
	testkit.Check(t, err)
	want := `{"name":"ns/g","waitTime":60000000000,"createTime":"2001-09-09T01:46:40Z","mode":"NonStrict",` +
		`"gangMatchPolicy":"once-satisfied","minRequiredNumber":3,"totalChildrenNum":3,"gangGroup":["ns/g"],` +
		`"children":["ns/p1","ns/p2","ns/p3"],"pendingChildren":["ns/p2","ns/p3"],"waitingForBindChildren":["ns/p1"],` +
		`"boundChildren":[],"onceResourceSatisfied":false,"scheduleCycleValid":true,"scheduleCycle":1,` +
		`"childrenScheduleRoundMap":{"ns/p1":1,"ns/p2":1,"ns/p3":0},"gangFrom":"GangFromPodAnnotation",` +
		`"hasGangInit":true,"state":"Holding","reason":"GangHolding",` +
		`"message":"gang ns/g holds 1 of the 3 members that must start together","deadline":"2001-09-09T01:47:40Z"}`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if g := view.GangOf(s, "ns/none"); g != nil {
		t.Errorf("a gang that does not exist is %+v", g)
	}
}

// TestWhatAGangAsksOfTheNetwork: its rules, those whose layer is not known, and the domains in which it did not fit.
func TestWhatAGangAsksOfTheNetwork(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	s.PutLayers(domain.NewLayers([]domain.Layer{{Name: "Block"}}))
	s.Put(
		gang.Pod{UID: "p", Namespace: "ns", Name: "p", Gang: "ns/g", Settings: gang.Settings{DomainRules: []domain.Rule{
			{Layer: "Block", Must: true, Multiple: 4}, {Layer: "Rack"}, {Label: "zone", Must: true},
		}}},
	)
	plan, _ := s.Begin("p")
	s.Conclude(plan.Members, nil, gang.Failure{UID: "p", Tried: gang.Tried{
		Rule: domain.Rule{Layer: "Block", Must: true}, Domains: 2, Many: 5, Best: "b1",
	}}, time.Now())
	g := view.GangOf(s, "ns/g")
	want := []string{
		"in one domain of layer Block, members in multiples of 4",
		"prefers few domains of layer Rack, which no ClusterNetworkTopology named default defines",
		"in one domain of label zone",
	}
	if diff := cmp.Diff(want, g.Network); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&view.Domains{Of: "Block", Many: 5, Tried: 2, Best: "b1"}, g.Tried); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	whole := gang.Pod{UID: "w", Namespace: "ns", Name: "w", Gang: "ns/w", WholeGPUs: true}
	s.Put(whole)
	whole.UID, whole.Name = "v", "v"
	s.Put(whole)
	s.PutNode("n", "f.1")
	want = []string{"prefers few domains of layer GPUCliqueTopologyLayer"}
	if diff := cmp.Diff(want, view.GangOf(s, "ns/w").Network); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const text = "of gang ns/g only 0 of 1 members fit in one domain of layer Block: tried 2 of 5, the others " +
		"have too little room, most fit in b1: pod ns/p does not"
	if g.Message != text {
		t.Errorf("got  %s\nwant %s", g.Message, text)
	}
}

// TestAGangThatWasInterruptedInItsStartHasNoMessageOfIt: one of its three members was bound when the scheduler stopped.
func TestAGangThatWasInterruptedInItsStartHasNoMessageOfIt(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	for _, uid := range []string{"p1", "p2", "p3"} {
		p := gang.Pod{UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g", Settings: gang.Settings{Min: 3}}
		if uid == "p1" {
			p.Node, p.Bound = "n", time.Unix(1, 0)
		}
		s.Put(p)
	}
	plan, _ := s.Begin("p2")
	s.Conclude(plan.Members, nil, gang.Failure{UID: "p3", Have: 2}, time.Now())
	g := view.GangOf(s, "ns/g")
	const text = "1 of 3 bound when the scheduler stopped; the rest does not fit: of gang ns/g only 2 of 3 " +
		"members fit: pod ns/p3 does not"
	if g.Message != text || g.Started || len(g.Bound) != 1 {
		t.Errorf("started %t, bound %v, message\n%s\nwant\n%s", g.Started, g.Bound, g.Message, text)
	}
}

func TestAGangOfWhichAPartIsBoundOrHeldHasAMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode  gang.Mode
		bound []string // members that have a node
		held  string   // the member that holds a reservation
		want  string
	}{
		"none bound": {gang.Strict, nil, "", ""},
		"all bound":  {gang.Strict, []string{"p1", "p2", "p3"}, "", ""},
		"started, one pending": {
			gang.Strict, []string{"p1", "p2"}, "", "2 of 3 members bound, 1 pending: see tenon explain pod/p3",
		},
		"started, one held": {
			gang.Strict, []string{"p1", "p2"}, "p3", "2 of 3 members bound, 1 holding reservations",
		},
	} {
		s := gang.New(gang.Settings{})
		for _, uid := range []string{"p1", "p2", "p3"} {
			p := gang.Pod{
				UID: uid, Namespace: "ns", Name: uid, Gang: "ns/g",
				Settings: gang.Settings{Min: 2, Mode: c.mode, Wait: time.Minute},
			}
			if slices.Contains(c.bound, uid) {
				p.Node = "n"
			}
			s.Put(p)
		}
		if c.held != "" {
			s.Place(c.held, time.Unix(1e9, 0))
		}
		if got := view.GangOf(s, "ns/g").Message; got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

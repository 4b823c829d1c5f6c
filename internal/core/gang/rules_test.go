package gang_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestAGangWaitsForItsLayer: one that must be in a domain of a layer that nothing defines is held, and says so; one
// that prefers it is not.
func TestAGangWaitsForItsLayer(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	put := func(uid, gangName string, must bool) {
		s.Put(gang.Pod{UID: uid, Namespace: "n", Name: uid, Gang: gangName, Settings: gang.Settings{
			Min: 1, DomainRules: []domain.Rule{{Layer: "block", Must: must}},
		}})
	}
	put("a", "n/a", true)
	put("b", "n/b", false)
	const text = `gang n/a must be in one domain of layer "block", which no ClusterNetworkTopology named default ` +
		"defines"
	if got := s.Gate("a"); got.Code != why.GangLayerNotFound || got.String() != text {
		t.Errorf("got %v %s", got.Code, got)
	}
	if got := s.Gate("b"); got.Code != why.None {
		t.Errorf("a gang that prefers is held: %s", got)
	}
	if plan, _ := s.Begin("b"); len(plan.DomainRequests) != 0 {
		t.Errorf("a layer that is not known has domains: %+v", plan.DomainRequests[0])
	}
	effects := s.PutLayers(domain.NewLayers([]domain.Layer{{Name: "block", Labels: []string{"b"}}}))
	if !slices.Contains(effects.Opened, "n/a") || s.Gate("a").Code != why.None {
		t.Errorf("got %+v, %s after the layer came", effects, s.Gate("a"))
	}
	plan, _ := s.Begin("a")
	want := []*domain.Request{{Members: []string{"a"}, Min: 1, Rules: []domain.Rule{{Layer: "block", Must: true}}}}
	if d := cmp.Diff(want, plan.DomainRequests); d != "" {
		t.Error(d)
	}
	s.PutLayers(domain.NewLayers(nil))
	if got := s.Gate("a"); got.Code != why.GangLayerNotFound {
		t.Errorf("got %v after the layer went", got.Code)
	}
}

// TestGangsThatSayTheSameGoTogether: those of a group with the same rules are in one domain, others by themselves.
func TestGangsThatSayTheSameGoTogether(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	s.PutLayers(domain.NewLayers([]domain.Layer{{Name: "block", Parent: "spine"}, {Name: "spine"}}))
	group := []string{"n/a", "n/b", "n/c", "n/d", "n/e", "n/f"}
	block, spine := domain.Rule{Layer: "block", Must: true}, domain.Rule{Layer: "spine"}
	put := func(uid, gangName, node string, joint bool, rules ...domain.Rule) {
		s.Put(
			gang.Pod{
				UID:       uid,
				Namespace: "n",
				Name:      uid,
				Gang:      gangName,
				Joint:     joint,
				Node:      node,
				Settings: gang.Settings{
					Min: 2, Group: group, Policy: gang.WaitingAndRunning, DomainRules: rules,
				},
			},
		)
	}
	put("a1", "n/a", "", false, spine, block)
	put("a2", "n/a", "x", false, spine, block)
	for _, uid := range []string{"b1", "b2"} {
		put(uid, "n/b", "", false, block, spine)
	}
	for _, uid := range []string{"c1", "c2"} {
		put(uid, "n/c", "", true)
	}
	for _, uid := range []string{"d1", "d2"} {
		put(uid, "n/d", "", false)
	}
	oneNode := domain.Rule{Layer: domain.NodeLayer, Must: true}
	for _, uid := range []string{"e1", "e2"} {
		put(uid, "n/e", "", true, oneNode)
	}
	for _, uid := range []string{"f1", "f2"} {
		put(uid, "n/f", "", true, spine)
	}
	plan, refused := s.Begin("a1")
	if plan == nil {
		t.Fatal(refused)
	}
	want := []*domain.Request{
		{Members: []string{"a1", "b1", "b2"}, Held: []string{"a2"}, Min: 3, Rules: []domain.Rule{block, spine}},
		{Members: []string{"c1", "c2"}, Min: 2, Rules: []domain.Rule{{Layer: domain.NodeLayer}}, Joint: true},
		{Members: []string{"e1", "e2"}, Min: 2, Rules: []domain.Rule{oneNode}, Joint: true},
		{
			Members: []string{"f1", "f2"}, Min: 2, Rules: []domain.Rule{{Layer: domain.NodeLayer}, spine}, Joint: true,
		},
	}
	if d := cmp.Diff(want, plan.DomainRequests); d != "" {
		t.Error(d)
	}
}

// TestGangsOfWholeGPUsAreJointByDefault: exactly those of several members that all ask for whole GPUs, where that is
// switched on, and those of which a member asks for it.
func TestGangsOfWholeGPUsAreJointByDefault(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, on := gang.New(gang.Settings{}), rapid.Bool().Draw(t, "on")
		s.JoinWholeGPUs(on)
		n := rapid.IntRange(1, 4).Draw(t, "members")
		asked, whole := 0, 0
		for i := range n {
			p := gang.Pod{
				UID: fmt.Sprint(i), Namespace: "n", Name: fmt.Sprint(i), Gang: "n/a", Settings: gang.Settings{Min: n},
				Joint:     rapid.IntRange(0, 9).Draw(t, "joint") == 0,
				WholeGPUs: rapid.IntRange(0, 3).Draw(t, "whole GPUs") > 0,
			}
			if p.Joint {
				asked++
			}
			if p.WholeGPUs {
				whole++
			}
			s.Put(p)
		}
		plan, refused := s.Begin("0")
		if plan == nil {
			t.Fatal(refused)
		}
		want := asked > 0 || on && n > 1 && whole == n
		if got := len(plan.DomainRequests) == 1 && plan.DomainRequests[0].Joint; got != want {
			t.Errorf("on: %t; of %d members %d ask for it and %d for whole GPUs: joint is %t, want %t", on, n, asked,
				whole, got, want)
		}
	})
}

// TestGangsOfWholeGPUsPreferOneClique: where a node is in a clique, and the gang states nothing about cliques itself.
func TestGangsOfWholeGPUsPreferOneClique(t *testing.T) {
	t.Parallel()
	cliques := domain.Rule{Layer: domain.GPUCliqueLayer}
	must, label := cliques, domain.Rule{Label: domain.GPUCliqueLabel, Must: true}
	must.Must = true
	spine, block := domain.Rule{Layer: "spine"}, domain.Rule{Layer: "block", Must: true}
	two := map[string]string{"x": "f.1", "y": "f.2"}
	for name, c := range map[string]struct {
		nodes map[string]string
		whole []bool // by member
		rules []domain.Rule
		joins bool
		want  []domain.Rule
	}{
		"prefers one":                  {two, []bool{true, true}, nil, false, []domain.Rule{cliques}},
		"no node is in a clique":       {map[string]string{"x": ""}, []bool{true, true}, nil, false, nil},
		"the last node leaves":         {map[string]string{"z": "f.1"}, []bool{true, true}, nil, false, nil},
		"a member without whole GPUs":  {two, []bool{true, false}, nil, false, nil},
		"one member":                   {two, []bool{true}, nil, false, nil},
		"must be in one":               {two, []bool{true, true}, []domain.Rule{must}, false, []domain.Rule{must}},
		"must be in one, without GPUs": {nil, []bool{false}, []domain.Rule{must}, false, []domain.Rule{must}},
		"must be of one label":         {two, []bool{true, true}, []domain.Rule{label}, false, []domain.Rule{label}},
		"within what it states": {
			two, []bool{true, true}, []domain.Rule{spine, block}, false, []domain.Rule{cliques, block, spine},
		},
		"behind one node": {
			two, []bool{true, true}, nil, true, []domain.Rule{{Layer: domain.NodeLayer}, cliques},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := gang.New(gang.Settings{})
			s.PutLayers(domain.NewLayers([]domain.Layer{{Name: "block", Parent: "spine"}, {Name: "spine"}}))
			s.JoinWholeGPUs(c.joins)
			for i, whole := range c.whole {
				s.Put(gang.Pod{
					UID: fmt.Sprint(i), Namespace: "n", Name: fmt.Sprint(i), Gang: "n/a", WholeGPUs: whole,
					Settings: gang.Settings{Min: len(c.whole), DomainRules: c.rules},
				})
			}
			for node, clique := range c.nodes {
				s.PutNode(node, clique)
			}
			s.PutNode("z", "")
			plan, refused := s.Begin("0")
			if plan == nil {
				t.Fatal(refused)
			}
			var got []domain.Rule
			if len(plan.DomainRequests) > 0 {
				got = plan.DomainRequests[0].Rules
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			prefers := slices.Contains(c.want, cliques)
			if r, _ := s.Find("n/a"); slices.Contains(r.Rules, cliques) != prefers {
				t.Errorf("reports %v", r.Rules)
			}
		})
	}
}

// TestWhereALaterMemberMayGo: rules that must hold bind members of a gang that has started. Before that, members of a
// NonStrict gang go where the others may follow.
func TestWhereALaterMemberMayGo(t *testing.T) {
	t.Parallel()
	s := gang.New(gang.Settings{})
	s.PutLayers(domain.NewLayers([]domain.Layer{{Name: "block"}, {Name: "spine"}}))
	put := func(uid, gangName, node string, mode gang.Mode, rules ...domain.Rule) {
		s.Put(gang.Pod{UID: uid, Namespace: "n", Name: uid, Gang: gangName, Node: node, Settings: gang.Settings{
			Min: 3, Mode: mode, DomainRules: rules,
		}})
	}
	block := domain.Rule{Layer: "block", Must: true, Multiple: 2}
	put("a1", "n/a", "x", gang.Strict, block, domain.Rule{Layer: "spine"})
	put("a2", "n/a", "", gang.Strict, block, domain.Rule{Layer: "spine"})
	put("b1", "n/b", "x", gang.Strict, domain.Rule{Layer: "spine"})
	put("b2", "n/b", "", gang.Strict, domain.Rule{Layer: "spine"})
	put("c1", "n/c", "", gang.NonStrict, domain.Rule{Layer: "spine"})
	put("d1", "n/d", "", gang.Strict)
	for _, uid := range []string{"e1", "e2", "e3", "e4"} {
		put(uid, "n/e", "", gang.NonStrict, block)
	}
	for _, uid := range []string{"f1", "f2", "f3", "f4"} {
		s.Put(gang.Pod{UID: uid, Namespace: "n", Name: uid, Gang: "n/f", Joint: true, Settings: gang.Settings{
			Min: 3, Mode: gang.NonStrict,
		}})
	}
	s.Place("e2", time.Unix(1, 0))
	s.Place("f4", time.Unix(1, 0))
	for uid, want := range map[string]*domain.Request{
		"a2": {
			Members: []string{"a2"}, Held: []string{"a1"}, Min: 1, Rules: []domain.Rule{{Layer: "block", Must: true}},
		},
		"b2": nil,
		"c1": {Members: []string{"c1"}, Min: 3, Rules: []domain.Rule{{Layer: "spine"}}},
		"d1": nil,
		"e3": {
			Members: []string{"e3", "e1", "e4"}, Held: []string{"e2"}, Min: 2,
			Rules: []domain.Rule{{Layer: "block", Must: true}},
		},
		"f1": {
			Members: []string{"f1", "f2", "f3"}, Held: []string{"f4"}, Min: 2,
			Rules: []domain.Rule{{Layer: domain.NodeLayer}}, Joint: true,
		},
	} {
		if d := cmp.Diff(want, s.DomainRequest(uid)); d != "" {
			t.Errorf("%s: %s", uid, d)
		}
	}
}

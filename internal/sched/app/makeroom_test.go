package app

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// TestMakeRoomUnderRulesBetweenNodes: a search that looked at the nodes alone which pods leave found two moves where
// one suffices, or none, and called it proven. Zone a has the nodes a1 and a2, zone b the nodes b1 and b2.
func TestMakeRoomUnderRulesBetweenNodes(t *testing.T) {
	terms := []corev1.PodAffinityTerm{{
		TopologyKey:   corev1.LabelTopologyZone,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}},
	}}
	avoid := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: terms,
		}}
	}
	seek := func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: terms,
		}}
	}
	spread := func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			TopologyKey: corev1.LabelTopologyZone, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: terms[0].LabelSelector,
		}}
	}
	x := object.Label("app", "x")
	for name, tt := range map[string]struct {
		want    []*corev1.Pod
		movable []*corev1.Pod
		fixed   []*corev1.Pod
		fill    map[string]int // of the 30 CPUs of each node, those of further pods that may not move
		moves   string
	}{
		"the pod avoids a zone": {
			want:    []*corev1.Pod{exclusive("want", "8", avoid)},
			movable: []*corev1.Pod{bound("m", "a1", list(1, 4), x)},
			fill:    map[string]int{"a1": 26, "a2": 20, "b1": 26, "b2": 30}, moves: "m a1 b1",
		},
		"a pod avoids that of the zone": {
			want:    []*corev1.Pod{exclusive("want", "8", x)},
			movable: []*corev1.Pod{bound("m", "a1", list(1, 4), avoid)},
			fill:    map[string]int{"a1": 26, "a2": 20, "b1": 26, "b2": 30}, moves: "m a1 b1",
		},
		"the pod is spread over zones": {
			want: []*corev1.Pod{exclusive("want", "8", x, spread)},
			movable: []*corev1.Pod{
				bound("m1", "a1", list(1, 4), x), bound("m2", "a1", list(3, 4), x), bound("m3", "b1", list(1, 4), x),
			},
			fill: map[string]int{"a1": 22, "a2": 20, "b1": 26, "b2": 26}, moves: "m1 a1 b2",
		},
		"the pod seeks another one, and the room of a third": {
			want: []*corev1.Pod{exclusive("want", "8", seek)},
			movable: []*corev1.Pod{
				bound("m1", "a1", list(1, 4), x), bound("m2", "b1", list(1, 4)),
			},
			fill: map[string]int{"a1": 26, "a2": 26, "b1": 22, "b2": 24}, moves: "m1 a1 b2, m2 b1 a2",
		},
		"the members of a gang avoid each other": {
			want:    []*corev1.Pod{exclusive("w0", "8", x, avoid), exclusive("w1", "8", x, avoid)},
			movable: []*corev1.Pod{bound("m", "b1", list(1, 4))},
			fill:    map[string]int{"a1": 20, "a2": 20, "b1": 22, "b2": 24}, moves: "m b1 b2",
		},
		"a pod that makes room is spread itself": {
			want: []*corev1.Pod{exclusive("want", "8", func(p *corev1.Pod) {
				p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "a"}
			})},
			movable: []*corev1.Pod{
				bound("p2", "a1", list(1, 8), x, spread), bound("p1", "b1", list(1, 4), x),
			},
			fixed: []*corev1.Pod{bound("p3", "b1", list(3, 4), x)},
			fill:  map[string]int{"a1": 22, "a2": 26, "b1": 22, "b2": 22}, moves: "p1 b1 a2, p2 a1 b2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &asked{newScheduler(t), t}
			for _, node := range []string{"a1", "a2", "b1", "b2"} {
				made := object.Node(node, map[string]string{
					corev1.LabelHostname: node, corev1.LabelTopologyZone: node[:1],
				}, "cpu", "32", "memory", "64Gi", "pods", "110")
				a.core.Nodes.AddNode(klog.Background(), made)
				a.store.PutNode(made)
				a.store.PutTopology(object.Topology(node, grid.Worked().Build(t), nil))
				a.add(bound("fill-"+node, node, list(16-tt.fill[node]/2, tt.fill[node])))
			}
			a.store.MarkSynced()
			a.core.Tracker.Leading.Store(true)
			q := &view.WhatIf{Ask: view.Ask{Mode: view.MakeRoom}}
			for _, p := range tt.want {
				q.Ask.Pods = append(q.Ask.Pods, "default/"+p.Name)
			}
			for _, p := range tt.movable {
				q.Ask.Movable = append(q.Ask.Movable, view.Movable{UID: string(p.UID)})
			}
			got, err := a.add(tt.want...).add(tt.movable...).add(tt.fixed...).whatIf.Answer(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			var moves []string
			for _, m := range got.Room.Moves {
				moves = append(moves, fmt.Sprintf("%s %s %s", strings.TrimPrefix(m.Pod, "default/"), m.Node, m.Target))
			}
			if text := strings.Join(moves, ", "); text != tt.moves || !got.Room.Proven {
				t.Errorf("got the moves %q, proven %v, want %q, proven", text, got.Room.Proven, tt.moves)
			}
		})
	}
}

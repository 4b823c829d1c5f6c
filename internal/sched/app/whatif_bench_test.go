package app

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
	"github.com/tenon-project/tenon/internal/view"
)

// BenchmarkMakeRoom looks for room for a pod of 20 CPUs on nodes of 32, each with seven pods of four, of which every
// second node has movable ones. Every target has room for one pod.
func BenchmarkMakeRoom(b *testing.B) {
	for _, nodes := range []int{100, 1000} {
		for moves := 2; moves <= 3; moves++ {
			b.Run(fmt.Sprintf("nodes=%d/moves=%d", nodes, moves), func(b *testing.B) {
				a := &asked{newScheduler(b), b}
				m := grid.Worked().Build(b)
				q := view.WhatIf{Ask: view.Ask{
					Mode: view.MakeRoom, Pods: []string{"default/large"}, MaxMoves: moves,
				}}
				for i := range nodes {
					name := fmt.Sprintf("n%d", i)
					node := object.Node(name, map[string]string{corev1.LabelHostname: name}, "cpu", "32",
						"memory", "64Gi", "pods", "110")
					a.core.Nodes.AddNode(klog.Background(), node)
					a.store.PutNode(node)
					a.store.PutTopology(object.Topology(name, m, nil))
					for j := range 6 {
						pod := bound(fmt.Sprintf("p%d-%d", i, j), name, list(2*j, 4))
						a.add(pod)
						if i%2 == 0 {
							movable := view.Movable{UID: string(pod.UID), Cost: int64(i % 7)}
							q.Ask.Movable = append(q.Ask.Movable, movable)
						}
					}
				}
				a.store.MarkSynced()
				a.add(exclusive("large", fmt.Sprint(2+4*moves+2)))
				text, _ := json.Marshal(q)
				b.ResetTimer()
				for b.Loop() {
					got, err := a.answer(string(text))
					if err != nil || !got.Room.Found || len(got.Room.Moves) != moves {
						b.Fatalf("got %+v, %v", got, err)
					}
				}
			})
		}
	}
}

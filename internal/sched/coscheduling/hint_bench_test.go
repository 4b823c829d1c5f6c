package coscheduling_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
)

// BenchmarkQueue is what the queue asks about a member of a complete gang: whether it may be tried, and whether a new
// node helps it, by the number of members.
func BenchmarkQueue(b *testing.B) {
	for _, members := range []int{4, 1000} {
		p, gangs := newPlugin(b)
		var last *corev1.Pod
		for i := range members {
			last = member(fmt.Sprint("m", i), "g", fmt.Sprint(members))
			last.Annotations[annotation.GangNetworkTopology] = inOneBlock
			gangs.PutPod(last)
		}
		b.Run(fmt.Sprintf("PreEnqueue/members=%d", members), func(b *testing.B) {
			for b.Loop() {
				p.PreEnqueue(b.Context(), last)
			}
		})
		events, err := p.EventsToRegister(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		ask := events[len(events)-1].QueueingHintFn
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"block": "a"}}}
		b.Run(fmt.Sprintf("hint/members=%d", members), func(b *testing.B) {
			for b.Loop() {
				if _, err := ask(klog.Background(), last, nil, node); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

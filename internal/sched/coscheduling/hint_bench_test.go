package coscheduling_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
)

// BenchmarkQueue is what the queue asks about a member: whether it may be tried, as all of its gang exist, and whether
// a new node helps one whose gang must be in a domain, by the number of members.
func BenchmarkQueue(b *testing.B) {
	for _, members := range []int{4, 1000} {
		p, gangs := newPlugin(b)
		var whole, gathered *corev1.Pod
		for i := range members {
			whole = member(fmt.Sprint("w", i), "whole", fmt.Sprint(members))
			gathered = member(fmt.Sprint("g", i), "gathered", fmt.Sprint(members))
			gathered.Annotations[annotation.GangNetworkTopology] = inOneBlock
			gangs.PutPod(whole)
			gangs.PutPod(gathered)
		}
		b.Run(fmt.Sprintf("PreEnqueue/members=%d", members), func(b *testing.B) {
			for b.Loop() {
				if status := p.PreEnqueue(b.Context(), whole); !status.IsSuccess() {
					b.Fatal(status)
				}
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
				if hint, err := ask(klog.Background(), gathered, nil, node); hint != fwk.Queue || err != nil {
					b.Fatal(hint, err)
				}
			}
		})
	}
}

package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/reservation/v1alpha1"
)

// reserved is the number of Reservations of the contender that has any.
const reserved = 200

// reservationSuite is pods that may use no Reservation in a cluster without Reservations beside the same with 200.
func reservationSuite(tenon string) suite {
	const room = "reserving.test"
	return suite{
		contenders: []contender{
			{name: "none", path: tenon}, {name: "reserved", path: tenon, reservations: reserved},
		},
		base: "none", digits: 3,
		cases: []benchCase{
			{
				name: "p", title: "(p) equal pods that may use no Reservation (promised: CPU ≤ 1.01)", ratioTo: "p",
				load: workload{cpu: "100m", memory: "128Mi"},
			},
			{
				name: "f", title: "(f) 50 alternating sizes that may use no Reservation (promised: CPU ≤ 1.01)",
				ratioTo: "f", load: workload{cpu: "100m", memory: "128Mi", sizes: alternating},
			},
		},
		benchmarks: []benchmark{
			{
				title:  "all that the plugin does for a pod, no Reservation",
				binary: room, name: "Pod/reservations=0", base: "p",
			},
			{
				title:  "all that the plugin does for a pod that may use none of 200 Reservations",
				binary: room, name: "Pod/reservations=200", base: "p",
			},
		},
	}
}

// setReservations makes the cluster's Reservations so many, each of one CPU on a node of its own, for pods that never
// come.
func (c *cluster) setReservations(ctx context.Context, n, nodes int) error {
	if n == c.reservations {
		return nil
	}
	c.reservations = n
	all := c.dynamic.Resource(v1alpha1.Resource())
	if n == 0 {
		return all.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	return each(ctx, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("bench-%03d", i)
		owner := map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{"for": name}}}
		r := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion().String(), "kind": "Reservation",
			"metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"ttl": "0", "owners": []any{owner},
				"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
					"name": "main", "resources": map[string]any{"requests": map[string]any{"cpu": "1"}},
				}}}},
			},
		}}
		if _, err := all.Create(ctx, r, metav1.CreateOptions{}); err != nil {
			return err
		}
		// All that the scheduler would write, so that it writes nothing while pods are measured.
		const condition = `{"type":%q,"status":"True","reason":%q,"lastProbeTime":%q,"lastTransitionTime":%[3]q}`
		now := time.Now().UTC().Format(time.RFC3339)
		status := fmt.Appendf(nil, `{"status":{"phase":"Available","nodeName":%q,"allocatable":{"cpu":"1"},`+
			`"conditions":[%s,%s]}}`, nodeName(i*nodes/n),
			fmt.Sprintf(condition, v1alpha1.ReservationScheduled, v1alpha1.ReasonScheduled, now),
			fmt.Sprintf(condition, v1alpha1.ReservationReady, v1alpha1.ReasonAvailable, now))
		_, err := all.Patch(ctx, name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
		return err
	})
}

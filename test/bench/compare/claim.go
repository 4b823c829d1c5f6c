package main

import (
	"context"
	"errors"
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// cardDriver publishes cardsOfNode devices on each node, and has a DeviceClass of its name.
	cardDriver  = "gpu.example.com"
	cardsOfNode = 8
	// deallocated is the finalizer that a scheduler puts on a claim before it allocates devices. Claims have it from
	// the start, so that all schedulers write as often.
	deallocated = resourcev1.Finalizer
)

// claimSuite is pods without and with ResourceClaims, on nodes without and with ResourceSlices. ignoring is
// tenon-scheduler without its part in claims.
func claimSuite(stock, tenon string) suite {
	plain := workload{cpu: "100m", memory: "128Mi"}
	claiming := plain
	claiming.claims = true
	return suite{
		contenders: []contender{
			{name: "stock", path: stock},
			{name: "tenon", path: tenon},
			{name: "ignoring", path: tenon, flags: []string{"--ignore-claims"}},
		},
		base: "stock", digits: 3,
		cases: []benchCase{
			{
				name: "a", title: "(a) plain pods, beside tenon's without claims (promised: CPU ≤ 1.01)", ratioTo: "a",
				ratioOf: "ignoring", load: plain, among: []string{"tenon", "ignoring"},
			},
			{
				name: "p", title: "(p) plain pods on nodes with ResourceSlices, likewise (promised: CPU ≤ 1.01)",
				ratioTo: "p", ratioOf: "ignoring", load: plain, cards: true, among: []string{"tenon", "ignoring"},
			},
			{
				name: "c", title: "(c) pods with a claim of one of 8 devices of a node (promised: CPU ≤ 1.1)",
				ratioTo: "c", load: claiming, cards: true, among: []string{"stock", "tenon"},
			},
		},
	}
}

func deviceClaim(i int) string { return fmt.Sprintf("card-%05d", i) }

// setCards publishes devices on all nodes, or ends that.
func (c *cluster) setCards(ctx context.Context, nodes int, wanted bool) error {
	if wanted == c.cards {
		return nil
	}
	c.cards = wanted
	client := c.kube.ResourceV1()
	if !wanted {
		return errors.Join(client.DeviceClasses().Delete(ctx, cardDriver, metav1.DeleteOptions{}),
			client.ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: cardDriver}}
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.driver == %q", cardDriver),
	}}}
	if _, err := client.DeviceClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		node := nodeName(i)
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-cards"}}
		s.Spec = resourcev1.ResourceSliceSpec{
			Driver: cardDriver, NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}
		for j := range cardsOfNode {
			uuid, numa := fmt.Sprintf("card-%d-%d", i, j), int64(j*2/cardsOfNode)
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{
				Name: fmt.Sprintf("gpu-%d", j), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
					"uuid": {StringValue: &uuid}, "resource.kubernetes.io/numaNode": {IntValue: &numa},
				},
			})
		}
		_, err := client.ResourceSlices().Create(ctx, s, metav1.CreateOptions{})
		return err
	})
}

// freeClaims makes n claims of one device each that are not allocated: those of the last run are deallocated, as no
// controller does it.
func (c *cluster) freeClaims(ctx context.Context, n int) error {
	client := c.kube.ResourceV1().ResourceClaims(namespace)
	known := c.claims
	c.claims = max(c.claims, n)
	return each(ctx, n, func(ctx context.Context, i int) error {
		if i < known {
			claim, err := client.Get(ctx, deviceClaim(i), metav1.GetOptions{})
			if err == nil && claim.Status.Allocation != nil {
				claim.Status = resourcev1.ResourceClaimStatus{}
				_, err = client.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
			}
			return err
		}
		claim := &resourcev1.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{Name: deviceClaim(i), Finalizers: []string{deallocated}},
		}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{
			{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: cardDriver}},
		}
		_, err := client.Create(ctx, claim, metav1.CreateOptions{})
		return err
	})
}

package device_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// TestSiblingsShareTheBestLinkedSet compares with all sets: the GPUs of several pods together are the best-linked set
// of so many free ones, and each pod in turn has the best-linked set of what is left of it.
func TestSiblingsShareTheBestLinkedSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "pods"), 0))
		s := drawServer(rt, 7, 0)
		for i := range s.spec.Devices {
			s.spec.Devices[i].Total[device.Bytes] = 80 * gib
		}
		v := empty(t, s.spec)
		if rng.IntN(2) == 0 {
			if c, reason := v.Choose(read(t, pod(asks{device.NVIDIAGPU: 1})), nil); reason.OK() {
				v = v.With(&device.Holding{UID: "other", Grants: c.Grants})
			}
		}
		m := &matrix{w: v.Weights()}
		free, index := uint64(0), map[string]int{}
		for d := range v.Devices() {
			if d.Healthy && d.Holders == 0 {
				free |= 1 << m.n
			}
			index[d.ID] = m.n
			m.nodes = append(m.nodes, v.NodesOf(d.Type, d.ID))
			m.n++
		}
		each := int64(1 + rng.IntN(3))
		var requests []*device.Request
		for range 1 + rng.IntN(3) {
			requests = append(requests, read(t, pod(asks{device.NVIDIAGPU: each})))
		}
		want, feasible := m.best(free, int(each)*len(requests), device.Demand{1, 1, 1})
		union, keys, ok := v.Union(requests, nil)
		if ok != feasible || ok && keys.Mask != want.Mask {
			rt.Fatalf("%d × %d of %b: got %b, %v, want %b, %v", len(requests), each, free, keys.Mask, ok, want.Mask,
				feasible)
		}
		if !ok {
			return
		}
		left := want.Mask
		for i, r := range requests {
			best, _ := m.best(left, int(each), device.Demand{1, 1, 1})
			c, reason := v.Choose(r, &device.Options{Within: union})
			if !reason.OK() || c.Keys.Mask != best.Mask {
				rt.Fatalf("pod %d of %b: got %b, %+v, want %b", i, left, c.Keys.Mask, reason, best.Mask)
			}
			v = v.With(&device.Holding{UID: fmt.Sprint(i), Grants: c.Grants})
			left &^= best.Mask
		}
		if left != 0 {
			rt.Fatalf("%b of the set is left", left)
		}
	})
}

// TestASetThatDoesNotServeIsLeft: the wish for a set refuses nothing.
func TestASetThatDoesNotServeIsLeft(t *testing.T) {
	t.Parallel()
	v := hold(t, empty(t, hgx()), "other", pod(asks{device.NVIDIAGPU: 1})) // GPU-0
	inside := &device.Options{Within: map[string]bool{"GPU-0": true, "GPU-5": true, "GPU-6": true}}
	for want, n := range map[string]int64{"GPU-5": 1, "GPU-5 GPU-6": 2, "GPU-1 GPU-2 GPU-3": 3} {
		c, reason := v.Choose(read(t, pod(asks{device.NVIDIAGPU: n})), inside)
		if got := ids(c, device.GPU); got != want || !reason.OK() {
			t.Errorf("%d GPUs: got %q, %+v, want %q", n, got, reason, want)
		}
	}
	if reason := v.Fits(read(t, pod(asks{device.NVIDIAGPU: 8})), inside); reason.OK() {
		t.Error("8 GPUs are free of 7")
	}
}

// TestWhoSharesNoSet: pods that ask for parts, or for other GPUs than the others.
func TestWhoSharesNoSet(t *testing.T) {
	t.Parallel()
	whole := read(t, pod(asks{device.NVIDIAGPU: 2}))
	hinted := pod(asks{device.NVIDIAGPU: 2})
	hinted.Hints = map[device.Type]device.Hint{device.GPU: {Scope: device.NUMALevel}}
	for name, c := range map[string]struct {
		requests []*device.Request
		want     bool
	}{
		"alike":             {[]*device.Request{whole, whole}, true},
		"one without GPUs":  {[]*device.Request{whole, read(t, pod(asks{device.RDMAShare: 1}))}, true},
		"parts":             {[]*device.Request{whole, read(t, pod(asks{device.GPUPercent: 50}))}, false},
		"of another vendor": {[]*device.Request{whole, read(t, pod(asks{"amd.com/gpu": 1}))}, false},
		"with a hint":       {[]*device.Request{whole, read(t, hinted)}, false},
		"too many":          {[]*device.Request{whole, whole, whole, whole, whole}, false},
		"none":              {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if ids, _, ok := empty(t, hgx()).Union(c.requests, nil); ok != c.want || ok != (len(ids) > 0) {
				t.Errorf("got %v, %v", ids, ok)
			}
		})
	}
}

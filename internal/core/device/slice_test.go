package device_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// TestNoSliceTwiceNorBesideItsGPU: whatever pods ask for, come and go, and whenever a driver slices a GPU or joins its
// slices again, also while a pod has it, no slice has two pods, and none has one while its GPU has. What is free by
// that rule is given.
func TestNoSliceTwiceNorBesideItsGPU(t *testing.T) {
	t.Parallel()
	const gpus, cuts = 3, 3
	given, refused := map[string]int{}, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "steps"), 0))
		sliced, used := [gpus]bool{}, map[string]int64{}
		gpu := func(i int) string { return fmt.Sprint("GPU-", i) }
		slice := func(i, j int) string { return fmt.Sprintf("MIG-%d%d", i, j) }
		holds := func(i int) bool {
			return slices.ContainsFunc([]int{0, 1, 2}, func(j int) bool { return used[slice(i, j)] > 0 })
		}
		// The agent lists a slice that is gone while a pod has it.
		listed := func() *device.Inventory {
			var spec device.Spec
			for i := range gpus {
				spec.Devices = append(spec.Devices, device.Device{Type: device.GPU, ID: gpu(i), Healthy: true})
				for j := range cuts {
					if sliced[i] || used[slice(i, j)] > 0 {
						spec.Devices = append(spec.Devices, device.Device{
							Type: device.GPU, ID: slice(i, j), Healthy: sliced[i], Profile: "1g.5gb", Parent: gpu(i),
							Total: device.Vector{device.Cores: 14, device.Bytes: 5 * gib},
						})
					}
				}
			}
			return inventory(t, &spec)
		}
		v := device.NewView(listed(), slices.Values([]*device.Holding(nil)))
		for step := range 30 {
			switch rng.IntN(5) {
			case 0:
				i := rng.IntN(gpus)
				sliced[i] = !sliced[i]
			case 1:
				for h := range v.Holdings() {
					for _, g := range h.Grants {
						used[g.ID] -= max(g.Amount[device.Cores], 1)
					}
					v = v.Without(h.UID)
					break
				}
			}
			v = v.On(listed())
			name := []string{"whole", "half", "slices"}[rng.IntN(3)]
			n := int64(1 + rng.IntN(2))
			ask := map[string]asks{
				"whole": {device.NVIDIAGPU: n}, "half": {device.GPUPercent: 50}, "slices": {"nvidia.com/mig-1g.5gb": n},
			}[name]
			free := int64(0)
			for i := range gpus {
				for j := range cuts {
					if name == "slices" && sliced[i] && used[gpu(i)] == 0 && used[slice(i, j)] == 0 {
						free++
					}
				}
				if whole := !sliced[i] && !holds(i); name == "whole" && whole && used[gpu(i)] == 0 ||
					name == "half" && whole && used[gpu(i)] <= 50 {
					free++
				}
			}
			if name == "half" {
				n = 1
			}
			r, faults := device.NewRequest(pod(ask), nil)
			if len(faults) > 0 {
				t.Fatal(faults)
			}
			c, reason := v.Choose(r, nil)
			if reason.OK() != (free >= n) {
				t.Fatalf("%v with %d free, sliced %v, used %v: %+v %+v", ask, free, sliced, used, c.Grants, reason)
			}
			if !reason.OK() {
				refused[name]++
				continue
			}
			given[name]++
			h := &device.Holding{UID: fmt.Sprint("pod-", step), Grants: c.Grants}
			for _, g := range c.Grants {
				var i, j int
				if _, err := fmt.Sscanf(g.ID, "MIG-%1d%1d", &i, &j); err == nil {
					if used[g.ID] > 0 || used[gpu(i)] > 0 || !sliced[i] {
						t.Fatalf("%s is given; used %v, sliced %v", g.ID, used, sliced)
					}
				} else if _, err := fmt.Sscanf(g.ID, "GPU-%d", &i); err != nil || holds(i) || sliced[i] {
					t.Fatalf("%s is given; used %v, sliced %v", g.ID, used, sliced)
				}
				used[g.ID] += max(g.Amount[device.Cores], 1)
			}
			v = v.With(h)
			if again := v.Admits(&device.Holding{UID: "other", Grants: c.Grants}); again.OK() && name != "half" {
				t.Fatalf("%+v are admitted twice", c.Grants)
			}
		}
	})
	for _, name := range []string{"whole", "half", "slices"} {
		if given[name] < cases || refused[name] < cases {
			t.Errorf("%s: given %d times, refused %d times", name, given[name], refused[name])
		}
	}
}

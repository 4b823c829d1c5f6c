package device_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// TestDegradedDevicesAreTakenLast: where any way to serve a request has no device that is likely to fail, none is
// chosen; of a request for one type as few as any way needs. They refuse nothing.
func TestDegradedDevicesAreTakenLast(t *testing.T) {
	t.Parallel()
	none, fewer, forced := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t, 4, 4)
		share := 2 + s.rng.IntN(3)
		for i := range s.spec.Devices {
			s.spec.Devices[i].Degraded = s.rng.IntN(share) == 0
		}
		v := inUse(t, s)
		p, r := drawRequest(t, s.rng, dpu())
		if len(r.Parts) == 0 || !v.AnyDegraded() {
			return
		}
		several := map[device.Type]int{}
		for _, part := range r.Parts {
			if several[part.Type]++; several[part.Type] > 1 && r.Joint.Scope != device.Anywhere {
				return // which containers have the devices that are added is not fixed
			}
		}
		least, fewest, most := int64(0), int64(-1), int64(-1)
		for kind := range several {
			if s := r.Hints[kind]; kind != device.GPU && s.Strategy == device.ApplyForAll {
				least = -1 // it gets the devices that it gets
			}
		}
		o := newOracle(v, r, nil)
		o.extend(0, map[device.Type][][]*device.Part{}, func(load map[device.Type][][]*device.Part) {
			if !o.feasible(load) {
				return
			}
			n := int64(0)
			for kind, amounts := range load {
				for i := range amounts {
					if len(amounts[i]) > 0 && o.devices[kind][i].Degraded {
						n++
					}
				}
			}
			if most = max(most, n); fewest < 0 || n < fewest {
				fewest = n
			}
		})
		c, reason := v.Choose(r, nil)
		if reason.OK() != (fewest >= 0) {
			t.Fatalf("%+v: %+v, and the fewest degraded devices of all ways are %d", p, reason, fewest)
		}
		got := v.Degraded(c.Grants)
		switch {
		case !reason.OK():
		case got < fewest || got > most, fewest == least && got > 0, len(several) == 1 && got != fewest:
			t.Fatalf("%+v: chose %d degraded devices %+v; the fewest of all ways are %d", p, got, c.Grants, fewest)
		case fewest > 0:
			forced++
		case most > 0:
			fewer++
		default:
			none++
		}
		for set := range v.Sets(r, nil) {
			if set.Keys != c.Keys {
				t.Fatalf("%+v: chose %+v, the first set is %+v", p, c.Keys, set.Keys)
			}
			break
		}
	})
	if none < cases/20 || fewer < cases/20 || forced < cases/20 {
		t.Errorf("nothing to choose %d, avoided %d, forced %d of %d cases", none, fewer, forced, cases)
	}
}

// TestADegradedGPUIsTakenLast on a server whose GPUs are all linked alike: whole GPUs and shares go elsewhere until it
// is the last one.
func TestADegradedGPUIsTakenLast(t *testing.T) {
	t.Parallel()
	spec := hgx()
	spec.Devices[0].Degraded = true // GPU-0
	v := empty(t, spec)
	for name, test := range map[string]struct {
		ask  asks
		want int64
	}{
		"seven GPUs": {asks{device.NVIDIAGPU: 7}, 0}, "all GPUs": {asks{device.NVIDIAGPU: 8}, 1},
		"a share": {asks{device.GPUPercent: 30}, 0},
	} {
		c, reason := v.Choose(read(t, pod(test.ask)), nil)
		if got := v.Degraded(c.Grants); !reason.OK() || got != test.want {
			t.Errorf("%s: %d degraded GPUs of %+v, %+v, want %d", name, got, c.Grants, reason, test.want)
		}
	}
	v = hold(t, v, "a", pod(asks{device.NVIDIAGPU: 7}))
	if c, _ := v.Choose(read(t, pod(asks{device.GPUPercent: 30})), nil); ids(c, device.GPU) != "GPU-0" {
		t.Errorf("the last GPU is not given: %+v", c.Grants)
	}
}

package claim_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/claim"
)

// TestUnmetCountsEachDeviceOnce, and says which request lacks devices.
func TestUnmetCountsEachDeviceOnce(t *testing.T) {
	t.Parallel()
	times := func(n int, d claim.Barred) (list []claim.Barred) {
		for range n {
			list = append(list, d)
		}
		return list
	}
	one := func(count int64, devices ...claim.Barred) claim.Request {
		return claim.Request{Claim: "c", Name: "r", Class: "gpu", Count: count, Devices: devices}
	}
	alternative := func(r claim.Request, name string) claim.Request {
		r.Alternative = name
		return r
	}
	free := claim.Barred{}
	large := append(times(2, claim.Barred{Bar: claim.Unselected, By: "`x`"}),
		claim.Barred{Bar: claim.Tainted, By: "k:NoSchedule"})
	large = append(large, times(5, claim.Barred{Bar: claim.Allocated, By: "a/b"})...)
	for name, tt := range map[string]struct {
		requests     []claim.Request
		constraints  []string
		want         string
		needed, free int64
	}{
		"every bar": {
			[]claim.Request{one(1, large...)},
			nil,
			"c/r requests 1 of 8 devices of class gpu: 2 fail selector `x`, 1 tainted k:NoSchedule, 5 allocated to " +
				"a/b, 0 free", 1, 0,
		},
		"the other bars, and many holders": {
			[]claim.Request{one(
				2, claim.Barred{Bar: claim.PoolBroken, By: "d/p"},
				claim.Barred{Bar: claim.HeldOutside, By: "w"},
				claim.Barred{Bar: claim.HeldOutside, By: "z"}, claim.Barred{Bar: claim.HeldOutside, By: "y"},
				claim.Barred{Bar: claim.HeldOutside, By: "x"},
				claim.Barred{Bar: claim.TooSmall, By: "capacity m"}, free,
			)},
			nil,
			"c/r requests 2 of 7 devices of class gpu: 1 in incomplete or invalid pool d/p, 4 held outside DRA by w, " +
				"x, y and 1 more, 1 with too little capacity m, 1 free", 2, 1,
		},
		"no device of the class": {
			[]claim.Request{one(1)}, nil, "c/r requests 1 of class gpu, of which the node has no device", 1, 0,
		},
		"all that the selectors match": {
			[]claim.Request{one(0, claim.Barred{Bar: claim.Unselected, By: "`x`"}, free,
				claim.Barred{Bar: claim.Allocated, By: "a"})},
			nil,
			"c/r requests all of 3 devices of class gpu: 1 fail selector `x`, 1 allocated to a, 1 free", 2, 1,
		},
		"all of none": {
			[]claim.Request{one(0)}, nil, "c/r requests all of class gpu, of which the node has no device", 1, 0,
		},
		"a constraint": {
			[]claim.Request{one(2, free, free)},
			[]string{"matchAttribute numaNode"},
			"c/r requests 2 of 2 devices of class gpu: 2 free; no set of free devices satisfies matchAttribute " +
				"numaNode",
			0, 0,
		},
		"two requests for one device": {
			[]claim.Request{one(1, free), one(1, free)},
			nil,
			"c/r requests 1 of 1 devices of class gpu: 1 free; c/r requests 1 of 1 devices of class gpu: 1 free; " +
				"no set of free devices satisfies all requests together", 0, 0,
		},
		"an alternative that is free": {
			[]claim.Request{alternative(one(2, free), "big"), alternative(one(1, free), "small")},
			nil,
			"c/r/big requests 2 of 1 devices of class gpu: 1 free; c/r/small requests 1 of 1 devices of class gpu: 1 " +
				"free; no set of free devices satisfies all requests together", 0, 0,
		},
	} {
		text, needed, left := claim.Unmet(tt.requests, tt.constraints)
		if text != tt.want || needed != tt.needed || left != tt.free {
			t.Errorf("%s: got %q, %d, %d\nwant %q, %d, %d", name, text, needed, left, tt.want, tt.needed, tt.free)
		}
	}
}

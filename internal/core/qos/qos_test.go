package qos_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/qos"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestRoleOfFollowsThePrinciples(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pod  qos.Pod
		want qos.Role
	}{
		"principle 2: LSE CPUs are shared with no pod": {
			pod: qos.Pod{Class: qos.LSE, Kube: qos.Guaranteed, MilliCPU: 4000}, want: qos.Exclusive,
		},
		"principle 3: LSR CPUs are shared with BE only": {
			pod: qos.Pod{Class: qos.LSR, Kube: qos.Guaranteed, MilliCPU: 4000}, want: qos.ExclusiveWithBE,
		},
		"principle 4: LS uses the shared pool, even with whole CPUs": {
			pod: qos.Pod{Class: qos.LS, Kube: qos.Guaranteed, MilliCPU: 4000}, want: qos.SharedPool,
		},
		"principle 5: BE uses the BE pool": {
			pod:  qos.Pod{Class: qos.BE, Kube: qos.Burstable, MilliCPU: 100},
			want: qos.BEPool,
		},
		"principle 6: a Guaranteed pod that the static kubelet pinned is left to it": {
			pod: qos.Pod{Kube: qos.Guaranteed, MilliCPU: 4000, PinnedByKubelet: true}, want: qos.KubeletPinned,
		},
		"principle 7: a running Guaranteed pod under the policy none is LS": {
			pod: qos.Pod{Kube: qos.Guaranteed, MilliCPU: 4000}, want: qos.SharedPool,
		},
		"principle 8: a new Guaranteed pod without QoS label is LS, fractional or not": {
			pod: qos.Pod{Kube: qos.Guaranteed, MilliCPU: 1500}, want: qos.SharedPool,
		},
		"Burstable without label is LS": {
			pod:  qos.Pod{Kube: qos.Burstable, MilliCPU: 100},
			want: qos.SharedPool,
		},
		"BestEffort without label is BE": {pod: qos.Pod{Kube: qos.BestEffort}, want: qos.BEPool},
		"SYSTEM uses the system CPUs": {
			pod:  qos.Pod{Class: qos.System, MilliCPU: 100},
			want: qos.SystemPool,
		},
		"LSE of the band prod binds": {
			pod:  qos.Pod{Class: qos.LSE, Band: qos.Prod, MilliCPU: 1000},
			want: qos.Exclusive,
		},
		"LSE of another band is not bound": {
			pod:  qos.Pod{Class: qos.LSE, Band: qos.Batch, MilliCPU: 1000},
			want: qos.SharedPool,
		},
		"LSR of another band is not bound": {
			pod:  qos.Pod{Class: qos.LSR, Band: qos.Mid, MilliCPU: 1000},
			want: qos.SharedPool,
		},
		"LSR without a CPU request is not bound": {pod: qos.Pod{Class: qos.LSR, Band: qos.Prod}, want: qos.SharedPool},
		"a pin of the kubelet does not turn an LS pod into its own": {
			pod:  qos.Pod{Class: qos.LS, Kube: qos.Guaranteed, MilliCPU: 4000, PinnedByKubelet: true},
			want: qos.SharedPool,
		},
		"a pin of the kubelet does not turn an LSR pod into its own": {
			pod:  qos.Pod{Class: qos.LSR, Kube: qos.Guaranteed, MilliCPU: 4000, PinnedByKubelet: true},
			want: qos.ExclusiveWithBE,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := qos.RoleOf(test.pod); got != test.want {
				t.Errorf("%+v: got role %d, want %d", test.pod, got, test.want)
			}
		})
	}
}

// TestOnlyLSEAndLSRBind says who binds: production pods of these two classes that ask for CPU.
func TestOnlyLSEAndLSRBind(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := qos.Pod{
			Class:           qos.Class(rapid.IntRange(int(qos.None), int(qos.System)).Draw(t, "class")),
			Band:            qos.Band(rapid.IntRange(int(qos.NoBand), int(qos.Free)).Draw(t, "band")),
			Kube:            qos.Kube(rapid.IntRange(int(qos.BestEffort), int(qos.Guaranteed)).Draw(t, "kube")),
			MilliCPU:        int64(rapid.IntRange(0, 3000).Draw(t, "milli")),
			PinnedByKubelet: rapid.Bool().Draw(t, "pinned"),
		}
		prod := p.Band == qos.Prod || p.Band == qos.NoBand
		want := (p.Class == qos.LSE || p.Class == qos.LSR) && prod && p.MilliCPU > 0
		if got := qos.RoleOf(p).Binds(); got != want {
			t.Fatalf("%+v: binds %v, want %v", p, got, want)
		}
	})
}

func TestParse(t *testing.T) {
	t.Parallel()
	for c := qos.None; c <= qos.System; c++ {
		if got, ok := qos.ParseClass(c.String()); !ok || got != c {
			t.Errorf("class %q reads as %v, %v", c, got, ok)
		}
	}
	for b := qos.Prod; b <= qos.Free; b++ {
		if got, ok := qos.ParseBand(b.String()); !ok || got != b {
			t.Errorf("band %q reads as %v, %v", b, got, ok)
		}
	}
	for _, text := range []string{"lsr", "LSX", " LS", "koord-prod"} {
		if got, ok := qos.ParseClass(text); ok {
			t.Errorf("class %q reads as %v, want a refusal", text, got)
		}
	}
	for _, text := range []string{"", "prod", "Koord-Prod", "LS"} {
		if got, ok := qos.ParseBand(text); ok {
			t.Errorf("band %q reads as %v, want a refusal", text, got)
		}
	}
}

func TestBandOfPriority(t *testing.T) {
	t.Parallel()
	tests := map[int32]qos.Band{
		8999: qos.NoBand, 9000: qos.Prod, 9999: qos.Prod, 10000: qos.NoBand,
		6999: qos.NoBand, 7000: qos.Mid, 7999: qos.Mid, 8000: qos.NoBand,
		4999: qos.NoBand, 5000: qos.Batch, 5999: qos.Batch, 6000: qos.NoBand,
		2999: qos.NoBand, 3000: qos.Free, 3999: qos.Free, 4000: qos.NoBand,
		0: qos.NoBand, -9500: qos.NoBand, 2000001000: qos.NoBand,
	}
	for priority, want := range tests {
		if got := qos.BandOf(priority); got != want {
			t.Errorf("priority %d: got %q, want %q", priority, got, want)
		}
	}
}

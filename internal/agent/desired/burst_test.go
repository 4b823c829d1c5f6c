package desired_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

func TestBursts(t *testing.T) {
	t.Parallel()
	config := func(p slo.CPUBurstPolicy, percent ...int64) slo.CPUBurstConfig {
		c := slo.CPUBurstConfig{Policy: p}
		if len(percent) > 0 {
			c.CPUBurstPercent = &percent[0]
		}
		return c
	}
	on := config(slo.CPUBurstOnly)
	for name, tt := range map[string]struct {
		pod    func(*desired.Pod)
		change func(*desired.Input)
		want   map[string]string // by group; nil for no row
	}{
		"nothing is asked": {},
		"the node asks: the default percentage, up to the quota": {
			change: func(in *desired.Input) { in.Burst = &on },
			want:   map[string]string{"": "70000", "c": "50000", "d": "20000"},
		},
		"the pod asks": {
			pod:  func(p *desired.Pod) { p.Burst = config(slo.CPUBurstOnly, 50) },
			want: map[string]string{"": "35000", "c": "25000", "d": "10000"},
		},
		"auto has its static part": {
			pod:  func(p *desired.Pod) { p.Burst = config(slo.CPUBurstAuto, 100) },
			want: map[string]string{"": "70000", "c": "50000", "d": "20000"},
		},
		"quota scaling alone has no effect": {pod: func(p *desired.Pod) { p.Burst = config(slo.CFSQuotaBurstOnly) }},
		"the pod's policy holds over the node's": {
			pod:    func(p *desired.Pod) { p.Burst = config(slo.CPUBurstNone) },
			change: func(in *desired.Input) { in.Burst = &on },
		},
		"the pod's percentage holds over the node's": {
			pod:    func(p *desired.Pod) { p.Burst = config("", 10) },
			change: func(in *desired.Input) { in.Burst = new(config(slo.CPUBurstOnly, 50)) },
			want:   map[string]string{"": "7000", "c": "5000", "d": "2000"},
		},
		"the node's percentage holds with the pod's policy": {
			pod:    func(p *desired.Pod) { p.Burst = on },
			change: func(in *desired.Input) { in.Burst = new(config(slo.CPUBurstNone, 50)) },
			want:   map[string]string{"": "35000", "c": "25000", "d": "10000"},
		},
		"0 percent is none": {pod: func(p *desired.Pod) { p.Burst = config(slo.CPUBurstOnly, 0) }},
		"a container without a limit, and so a pod without one, has no burst": {
			pod:  func(p *desired.Pod) { p.Burst, p.Limits, p.Limit = on, map[string]int64{"c": 500}, 0 },
			want: map[string]string{"c": "50000"},
		},
		"a pod with less than its containers": {
			pod:  func(p *desired.Pod) { p.Burst, p.Limit = on, 600 },
			want: map[string]string{"": "60000", "c": "50000", "d": "20000"},
		},
		"v1": {
			pod: func(p *desired.Pod) { p.Burst = on }, change: func(in *desired.Input) { in.Dialect = desired.V1 },
			want: map[string]string{"": "70000", "c": "50000", "d": "20000"},
		},
		"a SYSTEM pod": {
			pod:  func(p *desired.Pod) { p.Burst, p.Entry.Role = on, qos.SystemPool },
			want: map[string]string{"": "70000", "c": "50000", "d": "20000"},
		},
		"a BE pod": {pod: func(p *desired.Pod) { p.Burst, p.Entry.Role = on, qos.BEPool }},
		"a pod with batch CPU, whatever its class": {pod: func(p *desired.Pod) {
			p.Burst, p.WholeBatch = on, convert.Batch{CPU: true, LimitMilliCPU: 700}
		}},
		"an LSE pod, whose quota is lifted": {pod: func(p *desired.Pod) {
			p.Burst, p.Entry = on, entry("lse", qos.LSE, qos.Exclusive, "1,17")
		}},
		"an LSR pod without CPUs on the shared pool": {
			pod:    func(p *desired.Pod) { p.Burst, p.Entry.Role = on, qos.ExclusiveWithBE },
			change: func(in *desired.Input) { in.AllowUnallocatedLSR = true },
		},
		"a pod that the kubelet pinned": {pod: func(p *desired.Pod) {
			p.Burst, p.Pinnable, p.Entry = on, true, entry("pinned", qos.None, qos.SharedPool, "")
		}},
		"a kernel without the files": {
			pod: func(p *desired.Pod) { p.Burst = on }, change: func(in *desired.Input) { in.NoBurst = true },
		},
		"a pod that burst before": {
			pod: func(p *desired.Pod) { p.Bursted = true }, want: map[string]string{"": "0", "c": "0", "d": "0"},
		},
		"a container whose name is not known yet keeps its burst": {
			pod:  func(p *desired.Pod) { p.Bursted, p.Burst, p.Leaves[0].Container = true, on, "" },
			want: map[string]string{"": "70000", "d": "20000"},
		},
		"a pod that burst before, while the node's strategy is not known": {
			pod: func(p *desired.Pod) { p.Bursted = true }, change: func(in *desired.Input) { in.Burst = nil },
		},
		"a pod that burst before, while only the runtime knows it": {
			pod: func(p *desired.Pod) { p.Bursted, p.Limits = true, nil },
		},
		"a pod that burst before, on a node that is left": {
			pod:    func(p *desired.Pod) { p.Bursted, p.Burst, p.Limits = true, on, nil },
			change: func(in *desired.Input) { in.Kubelet, in.Burst = &desired.Kubelet{}, nil },
			want:   map[string]string{"": "0", "c": "0", "d": "0"},
		},
		"a pod on a node that is left": {
			pod:    func(p *desired.Pod) { p.Burst = on },
			change: func(in *desired.Input) { in.Kubelet = &desired.Kubelet{} },
		},
	} {
		p := leafOf(entry("p", qos.LS, qos.SharedPool, ""))
		p.Leaves = append(p.Leaves, desired.Leaf{Path: "kubepods/podp/d", Container: "d"},
			desired.Leaf{Path: "kubepods/podp/sandbox"})
		p.Limits, p.Limit = map[string]int64{"c": 500, "d": 200}, 700
		if tt.pod != nil {
			tt.pod(&p)
		}
		in := desired.Input{View: node(t, p.Entry), Burst: &slo.CPUBurstConfig{}}
		if tt.change != nil {
			tt.change(&in)
		}
		in.Pods = []desired.Pod{p}
		var got map[string]string
		for _, row := range desired.Compute(in).Rows {
			if row.File == in.Dialect.Burst() && row.Path != "kubepods/podp/sandbox" {
				if got == nil {
					got = map[string]string{}
				}
				got[row.Container] = row.Value
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

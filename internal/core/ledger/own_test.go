package ledger_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/cpuset"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/tenancy"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func TestWhichPodsHaveCPUsNUMANodesOrDevicesOfTheirOwn(t *testing.T) {
	t.Parallel()
	gpu := ledger.Entry{UID: "p", Devices: []device.Grant{{Type: device.GPU}}}
	for name, c := range map[string]struct {
		entry ledger.Entry
		// static: the kubelet pins CPUs. pinned: it reports CPUs of the pod.
		static, pinned bool
		want           bool
	}{
		"CPUs":                               {lsr("p", "2,18"), false, false, true},
		"NUMA nodes":                         {confined("p", 1000, 0), false, false, true},
		"a device":                           {gpu, false, false, true},
		"a device that is not known":         {ledger.Entry{UID: "p", Unallocated: true}, false, false, true},
		"CPUs of the kubelet, soon":          {ledger.Entry{UID: "p", Guest: taking(2)}, true, false, true},
		"parts of CPUs, which it never pins": {ledger.Entry{UID: "p", Guest: taking(0)}, true, false, false},
		"a kubelet that pins none":           {ledger.Entry{UID: "p", Guest: taking(2)}, false, false, false},
		"a kubelet that has pinned some":     {ledger.Entry{UID: "p", Guest: taking(2)}, false, true, true},
		"another pod's":                      {lsr("q", "2,18"), false, false, false},
	} {
		f := ledger.Facts{Machine: grid.Worked().Build(t)}
		if c.static {
			f.Model.Config.CPU = kubelet.CPU{Static: true, Reserved: cpuset.MustParse("0,16")}
			count(t, &f)
		}
		if c.pinned {
			f.Given = []tenancy.Grant{pin("p", "3,19")}
		}
		if got := ledger.New(f).View().With(c.entry).HasOwn("p"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

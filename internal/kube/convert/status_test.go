package convert_test

import (
	"testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// fourNodes has NUMA nodes 0, 4 and 5 of socket 0 and 1 with 1, 2 and 1 CPUs, one of them reserved.
const fourNodes = `{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":1,"node":4},` +
	`{"id":2,"core":2,"socket":1,"node":4},{"id":3,"core":3,"socket":1,"node":5}]}`

func TestStatus(t *testing.T) {
	t.Parallel()
	nrt := newNRT(map[string]string{
		annotation.CPUTopology:     fourNodes,
		annotation.NodeReservation: `{"reservedCPUs":"3"}`,
	})
	facts, problems := convert.Facts(nil, nrt, convert.DefaultArgs())
	if facts.Machine == nil {
		t.Fatalf("no machine: %v", problems)
	}
	view := ledger.New(facts).View()
	tests := map[string]struct {
		entry ledger.Entry
		milli int64
		want  string
	}{
		"exclusive CPUs": {ledger.Entry{CPUList: "0,2", Role: qos.Exclusive}, 2000, `{"cpuset":"0,2"}`},
		"the whole pool": {ledger.Entry{Role: qos.SharedPool}, 500, `{}`},
		"one NUMA node of the pool": {
			ledger.Entry{NUMAIDs: []int{4}},
			1500,
			`{"cpuSharedPools":[{"socket":1,"node":4}],"numaNodeResources":[{"node":4,"resources":{"cpu":"1500m"}}]}`,
		},
		"two of them, by their size": {
			ledger.Entry{NUMAIDs: []int{0, 4}},
			1000,
			`{"cpuSharedPools":[{"socket":0,"node":0},{"socket":1,"node":4}],"numaNodeResources":[{"node":0,` +
				`"resources":{"cpu":"334m"}},{"node":4,"resources":{"cpu":"666m"}}]}`,
		},
		"one that is empty": {
			ledger.Entry{NUMAIDs: []int{5}},
			1000,
			`{"cpuSharedPools":[{"socket":1,"node":5}],"numaNodeResources":[{"node":5,"resources":{"cpu":"1"}}]}`,
		},
		"an empty one takes nothing from the others": {
			ledger.Entry{NUMAIDs: []int{5, 0, 4}},
			1000,
			`{"cpuSharedPools":[{"socket":1,"node":5},{"socket":0,"node":0},{"socket":1,"node":4}],` +
				`"numaNodeResources":[{"node":5,"resources":{"cpu":"0"}},{"node":0,"resources":{"cpu":"334m"}},` +
				`{"node":4,"resources":{"cpu":"666m"}}]}`,
		},
		"one that the machine does not have": {ledger.Entry{NUMAIDs: []int{9}}, 1000, `{}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := convert.Status(facts.Machine, view, &place.Request{RequestMilli: tt.milli},
				ledger.Offer{Entry: tt.entry})
			if annotation.Encode(got) != tt.want {
				t.Errorf("status = %s, want %s", annotation.Encode(got), tt.want)
			}
		})
	}
}

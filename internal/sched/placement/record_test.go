package placement

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube"
)

// TestDevicesAreRecordedWithoutATopology: a node whose CPUs no one describes has devices all the same.
func TestDevicesAreRecordedWithoutATopology(t *testing.T) {
	t.Parallel()
	view := ledger.New(ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}}).View()
	c := &Cycle{store: kube.NewStore(), Request: &place.Request{}, view: view}
	c.Offer.Entry.Devices = []device.Grant{{
		Type: device.GPU, ID: "GPU-a", Minor: 1, Ratio: 25,
		Amount:     device.Vector{device.Cores: 50, device.Bytes: 4 << 30},
		Containers: []device.ContainerGrant{{Name: "c", Amount: device.Vector{device.Cores: 50}, Ratio: 25}},
	}}
	if got := c.Record(); got != nil {
		t.Errorf("before the pod is reserved: %v", got)
	}
	c.reserved = "n"
	want := map[string]string{annotation.DeviceAllocatedKey: `{"gpu":[{"minor":1,"id":"GPU-a","resources":` +
		`{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"4Gi","koordinator.sh/gpu-memory-ratio":"25"},` +
		`"extension":{"containers":{"c":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"25"}}}}]}`}
	if diff := cmp.Diff(want, c.Record()); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	c.adapt = true
	record := c.Record()
	at, err := strconv.ParseInt(record[annotation.BindTimestampKey], 10, 64)
	if err != nil || at <= 0 || record[annotation.GPUMinorsKey] != "1" || len(record) != 3 {
		t.Errorf("for device plugins: %v, %v", record, err)
	}
	c.Offer.Entry.Devices = nil
	if got := c.Record(); got != nil {
		t.Errorf("a pod without devices and CPUs: %v", got)
	}
}

//go:build hw

package inventory_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
)

// nvidia-smi of this machine describes the GPUs that the driver has files for. Nothing is changed on them.
func TestNVIDIAsProgramOnThisMachine(t *testing.T) {
	root := host.Root{Dir: "/"}
	devices, err := inventory.SMI(root, inventory.HostSMI(root)).Devices()
	if err != nil {
		t.Error(err)
	}
	if len(devices) == 0 {
		text := "NOT RUN: " + t.Name() + ": no GPU of NVIDIA here"
		fmt.Println(text) //nolint:forbidigo // seen without -v
		t.Skip(text)
	}
	files, err := host.FindDevices(root, host.NVIDIA)
	if err != nil {
		t.Error(err)
	}
	at := map[string]string{}
	for _, d := range files {
		at[d.UUID] = d.Topology.BusID
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		if d.Labels["node.tenon.sh/parent"] != "" {
			continue
		}
		if d.Resources["gpu-memory"] == "" || d.Model == "" || at[d.UUID] != d.Topology.BusID {
			t.Errorf("%+v: lacks memory or model, or is at %q by the driver's files", d, at[d.UUID])
		}
	}
}

//go:build hw && nvml && cgo

package inventory

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// The library and the driver's files describe the same GPUs of this machine. Nothing is changed on them.
func TestLibraryOnThisMachine(t *testing.T) {
	root := host.Root{Dir: "/"}
	devices, err := NVML(root)[0].Devices()
	if err != nil {
		t.Error(err)
	}
	files, err := host.FindDevices(root, host.NVIDIA)
	if err != nil {
		t.Error(err)
	}
	if len(devices)+len(files) == 0 {
		text := "NOT RUN: " + t.Name() + ": no GPU of NVIDIA here"
		fmt.Println(text) //nolint:forbidigo // seen without -v
		t.Skip(text)
	}
	minors := map[string]string{}
	for _, d := range files {
		minors[d.UUID] = d.Minor
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		named := strings.HasPrefix(d.UUID, "GPU-") || strings.HasPrefix(d.UUID, "MIG-")
		if !named || d.Resources["gpu-memory"] == "" || d.Model == "" {
			t.Errorf("%+v lacks its UUID, memory or model", d)
		}
		if minor, known := minors[d.UUID]; strings.HasPrefix(d.UUID, "GPU-") && (!known || minor != d.Minor) {
			t.Errorf("%s has minor %q, and %q (%t) by the driver's files", d.UUID, d.Minor, minor, known)
		}
	}
}

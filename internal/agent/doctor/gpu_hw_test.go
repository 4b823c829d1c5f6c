//go:build hw && linux

package doctor

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// The driver of this machine is found, with the device files of its cards.
func TestDoctorGPUOnThisMachine(t *testing.T) {
	root := host.Root{Dir: "/"}
	if cards, _ := host.FindDevices(root, host.NVIDIA); len(cards) == 0 {
		text := "NOT RUN: " + t.Name() + ": no GPU of NVIDIA here"
		fmt.Println(text) //nolint:forbidigo // seen without -v
		t.Skip(text)
	}
	for _, f := range GPUs(Options{Root: root}) {
		t.Logf("%+v", f)
		if (f.Check == "driver" || f.Check == "device-files") && f.Status != OK {
			t.Errorf("%s: %s: %s", f.Check, f.Status, f.Found)
		}
	}
}

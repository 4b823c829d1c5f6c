package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/testkit"
)

const twoCards = `<nvidia_smi_log><driver_version>570.133.20</driver_version>
<gpu id="00000000:17:00.0"><product_name>NVIDIA H100 PCIe</product_name><uuid>GPU-1</uuid>
 <minor_number>0</minor_number><fb_memory_usage><total>81559 MiB</total></fb_memory_usage>
 <processes><process_info><pid>4711</pid><used_memory>512 MiB</used_memory></process_info></processes></gpu>
<gpu id="00000000:65:00.0"><product_name>NVIDIA H100 PCIe</product_name><uuid>GPU-2</uuid>
 <minor_number>1</minor_number><fb_memory_usage><total>81559 MiB</total></fb_memory_usage></gpu>
</nvidia_smi_log>`

// The agent of the node knows by the drop file what nvidia-smi said, and a card that is lost does not work.
func TestTheAgentReadsWhatTheReporterWrites(t *testing.T) {
	root := host.Root{Dir: t.TempDir()}
	out := root.Path(host.DropDirs()[0])
	answer, fault := twoCards, error(nil)
	r := newReporter(root.Dir, out, func(host.Root) inventory.RunSMI {
		return func(_ context.Context, args ...string) ([]byte, error) {
			switch args[0] {
			case "topo":
				return []byte("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"), nil
			case "nvlink":
				return nil, errors.New("unknown option")
			}
			return []byte(answer), fault
		}
	})
	agent, err := inventory.New(inventory.Options{Root: root, Clock: clock.RealClock{}})
	testkit.Check(t, err)
	look := func() []host.Dropped {
		t.Helper()
		testkit.Check(t, r.report(t.Context()))
		if _, err := agent.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		return agent.Devices(nil)
	}
	list := look()
	if len(list) != 2 || list[0].Resources["gpu-memory"] != "85520809984" || list[0].Status != nil ||
		len(list[0].Topology.P2PLinks) != 1 || list[0].Topology.P2PLinks[0].Count != 12 {
		t.Fatalf("the agent knows %+v", list)
	}
	if used := agent.Processes(); used["GPU-1"][4711] != 512<<20 || len(used["GPU-2"]) != 0 {
		t.Errorf("processes %v", used)
	}
	first, _, _ := strings.Cut(answer, `<gpu id="00000000:65`)
	answer = first + "</nvidia_smi_log>"
	fails := func(i int, code string) bool {
		return len(list) == 2 && list[i].Status != nil && !list[i].Status.Healthy && list[i].Status.ErrCode == code
	}
	if list = look(); !fails(1, "Lost") {
		t.Errorf("after the loss of a card: %+v", list)
	}
	answer, fault = "", errors.New("exit status 255")
	for range 3 {
		list = look()
	}
	if !fails(0, "Unread") {
		t.Errorf("after three runs of nvidia-smi that failed: %+v", list)
	}
}

// A drop file of an earlier driver says nothing of a machine without a driver.
func TestAMachineWithoutADriverHasNoCards(t *testing.T) {
	root := host.Root{Dir: t.TempDir()}
	out := root.Path(host.DropDirs()[0])
	file := filepath.Join(out, nvidiaFile)
	old := []byte(`[{"uuid":"GPU-1"}]`)
	testkit.Check(t, errors.Join(os.MkdirAll(out, 0o755), os.WriteFile(file, old, 0o600)))
	testkit.Check(t, newReporter(root.Dir, out, inventory.HostSMI).report(t.Context()))
	if text, err := os.ReadFile(file); err != nil || string(text) != "[]\n" {
		t.Errorf("%s: %v", text, err)
	}
}

func TestReportNVIDIARefusesAPaceThatIsTooFast(t *testing.T) {
	c := New(nil)
	c.SetArgs([]string{"report-nvidia", "--every", "10ms"})
	err := c.ExecuteContext(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--every 10ms: want 1s or more") {
		t.Errorf("error %v", err)
	}
}

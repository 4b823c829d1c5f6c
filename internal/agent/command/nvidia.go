package command

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/agent/statedir"
)

// nvidiaFile is the drop file of report-nvidia.
const nvidiaFile = "nvidia.json"

func newReportNVIDIACommand() *cobra.Command {
	var root, out string
	var every time.Duration
	c := &cobra.Command{
		Use:   "report-nvidia",
		Short: "Report the GPUs of NVIDIA to the agent of this node",
		Long: "Report what the driver's program nvidia-smi says of the GPUs of this machine in a drop file,\n" +
			"which the agent of the node reads: memory, model, NVLinks, MIG devices, health, and the memory\n" +
			"that processes use. The command needs no API server. It runs nvidia-smi of the machine with the\n" +
			"machine's libraries, so it needs the capability SYS_CHROOT and the driver's device files.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < time.Second {
				return fmt.Errorf("--every %v: want 1s or more", every)
			}
			r := newReporter(root, out, inventory.HostSMI)
			var err error
			ctx, stop := context.WithCancel(c.Context())
			defer stop()
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err = r.report(ctx); err != nil {
					stop()
				}
			}, every)
			return err
		},
	}
	fs := c.Flags()
	fs.StringVar(&root, "root", "/", "directory to use as the host's /")
	fs.StringVar(&out, "out", "/"+host.DropDirs()[0], "`folder` of the drop file "+nvidiaFile)
	fs.DurationVar(&every, "every", 15*time.Second, "time between two runs of nvidia-smi")
	return c
}

type reporter struct {
	found *inventory.Inventory
	out   statedir.Dir
	fault string // what was logged last
}

func newReporter(root, out string, smi func(host.Root) inventory.RunSMI) *reporter {
	r := host.Root{Dir: root}
	// Without a folder for what it remembers, and without drop files, there is nothing that could not be read.
	found, _ := inventory.New(inventory.Options{
		Drivers: []inventory.Driver{inventory.SMI(r, smi(r))}, Clock: clock.RealClock{},
	})
	return &reporter{found: found, out: statedir.Dir(out)}
}

// report asks nvidia-smi once and writes the drop file. What cannot be read is logged when it changes, and is in the
// health of the devices; the error is that of the file.
func (r *reporter) report(ctx context.Context) error {
	_, fault := r.found.Refresh(ctx)
	select {
	case <-ctx.Done(): // the reporter ends
		return nil
	default:
	}
	text := fmt.Sprint(fault)
	if fault != nil && text != r.fault {
		klog.FromContext(ctx).Error(fault, "Cannot read all of the GPUs")
	}
	r.fault = text
	list, used := r.found.Devices(nil), r.found.Processes()
	for i := range list {
		list[i].Processes = used[list[i].UUID]
	}
	if list == nil {
		list = []host.Dropped{}
	}
	file, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return r.out.Write(nvidiaFile, string(file)+"\n")
}

package inventory

import (
	"context"
	"os"
	"os/exec"
	"path"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// Where a driver may be: in the container of NVIDIA's GPU Operator, or installed on the host; and where nvidia-smi is
// below it, the last with the libraries beside it.
var (
	driverRoots = []string{"run/nvidia/driver", "."}
	smiPrograms = []string{
		"usr/bin/nvidia-smi", "usr/local/bin/nvidia-smi", "opt/bin/nvidia-smi", "usr/lib/wsl/lib/nvidia-smi",
		"home/kubernetes/bin/nvidia/bin/nvidia-smi",
	}
)

// HostSMI runs the nvidia-smi of the machine with the libraries of the machine: in a process whose root folder is that
// of the driver. It needs the capability SYS_CHROOT, and access to the driver's device files.
func HostSMI(root host.Root) RunSMI {
	return func(ctx context.Context, args ...string) ([]byte, error) {
		dir, program := findSMI(root)
		if program == "" {
			return nil, exec.ErrNotFound
		}
		c := exec.CommandContext(ctx, "/"+program, args...)
		c.Dir = "/"
		c.Env = []string{
			"PATH=/usr/bin:/bin", "LC_ALL=C",
			"LD_LIBRARY_PATH=/" + path.Join(path.Dir(path.Dir(program)), "lib64"),
		}
		if dir != "/" {
			c.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
		}
		c.WaitDelay = time.Second
		return c.Output()
	}
}

// findSMI returns the root folder of the driver, and the program's path below it; "" where there is none.
func findSMI(root host.Root) (dir, program string) {
	for _, dir := range driverRoots {
		folder, err := os.OpenRoot(root.Path(dir))
		if err != nil {
			continue
		}
		for _, name := range smiPrograms {
			if _, err := folder.Lstat(name); err == nil && program == "" {
				program = name
			}
		}
		_ = folder.Close()
		if program != "" {
			return root.Path(dir), program
		}
	}
	return "", ""
}

//go:build hw

package inventory_test

import (
	"bufio"
	"fmt"
	"os/exec"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/testkit"
)

// takeMemory is a program that holds 256 MiB of the first GPU until its input ends.
const takeMemory = `
import ctypes, sys
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
for code in (cuda.cuInit(0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0),
             cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(256 << 20))):
    if code: sys.exit("CUDA error %d" % code)
print("holds", flush=True)
sys.stdin.read()
`

// What a process uses of a GPU is reported by its id on the machine, from which the agent finds its pod. A machine that
// shows its processes to this test under other ids, as a container does, fails it.
func TestProcessesOnThisMachine(t *testing.T) {
	notRun := func(why string) {
		text := "NOT RUN: " + t.Name() + ": " + why
		fmt.Println(text) //nolint:forbidigo // seen without -v
		t.Skip(text)
	}
	root := host.Root{Dir: "/"}
	driver := inventory.SMI(root, inventory.HostSMI(root))
	if before, err := driver.Devices(); len(before) == 0 {
		notRun(fmt.Sprintf("no GPU of NVIDIA here (%v)", err))
	}
	if _, err := exec.LookPath("python3"); err != nil {
		notRun("no python3 here")
	}
	c := exec.CommandContext(t.Context(), "python3", "-c", takeMemory)
	in, err := c.StdinPipe()
	testkit.Check(t, err)
	out, err := c.StdoutPipe()
	testkit.Check(t, err)
	testkit.Check(t, c.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	devices, err := driver.Devices()
	testkit.Check(t, err)
	testkit.Check(t, in.Close())
	if err := c.Wait(); err != nil || line != "holds\n" {
		t.Fatalf("the program that takes memory printed %q: %v", line, err)
	}
	used := int64(0)
	for i := range devices {
		t.Logf("%s: %v", devices[i].UUID, devices[i].Processes)
		used += devices[i].Processes[c.Process.Pid]
	}
	if used < 256<<20 {
		t.Errorf("process %d uses %d bytes by the driver, want 256 MiB or more", c.Process.Pid, used)
	}
}

//go:build e2e_node

package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// machineRoot is the root of a machine with cards: two GPUs and two RDMA adapters, whose device files have numbers that
// no driver has. To open one answers ENXIO where the devices controller allows it, and EPERM where not. CPUs, memory
// and cgroups are the machine's own.
const machineRoot = "/run/machine"

// accelerated is a world whose machine has cards.
type accelerated struct {
	*world
	// numbers are the device numbers of the files of the cards, by the path in /dev.
	numbers map[string][2]int
}

// newAccelerated starts a node with cards whose devices are Tenon's. Where describable is false the agent cannot
// describe them to the runtime.
func newAccelerated(t *testing.T, route path, describable bool) *accelerated {
	t.Helper()
	gpus, adapters := unusedMajors(t)
	a := &accelerated{numbers: map[string][2]int{
		"nvidia0": {gpus, 0}, "nvidia1": {gpus, 1}, "nvidiactl": {gpus, 255},
		"infiniband/uverbs0": {adapters, 192}, "infiniband/uverbs1": {adapters, 193},
	}}
	newWorld(t, route, options{flags: []string{"--root=" + machineRoot}, prepare: func(w *world) {
		a.world = w
		a.layMachine(describable)
		a.layDev()
	}})
	a.awaitAgent(route)
	return a
}

// awaitAgent waits until the agent knows whose the devices are, and until a runtime with NRI asks it.
func (a *accelerated) awaitAgent(route path) {
	a.Helper()
	if route.nri() {
		a.awaitConnected()
	}
	stage.Await(a, "the agent to know whose the devices are", func() error {
		text, err := os.ReadFile(machineRoot + "/var/lib/tenon-agent/device.json")
		if err == nil && !strings.Contains(string(text), `"mode":"Own","types":["gpu","rdma"]`) {
			err = fmt.Errorf("it has %s", text)
		}
		return err
	})
}

// unusedMajors returns two numbers that no driver of the machine has.
func unusedMajors(t *testing.T) (a, b int) {
	t.Helper()
	text, err := os.ReadFile("/proc/devices")
	testkit.Check(t, err)
	for n := 254; n > 233; n-- {
		if !strings.Contains(string(text), fmt.Sprintf("\n%3d ", n)) {
			a, b = n, a
		}
	}
	if b == 0 {
		t.Fatalf("the drivers of this machine have all numbers: %s", text)
	}
	return a, b
}

// layMachine makes the tree that the agent takes for the machine. Where devices cannot be described, the folder for
// that is a file.
func (a *accelerated) layMachine(describable bool) {
	a.Helper()
	files := map[string]string{
		"proc/cpuinfo": read(a.T, "/proc/cpuinfo"), "proc/meminfo": read(a.T, "/proc/meminfo"),
		"proc/sys/kernel/random/boot_id": read(a.T, "/proc/sys/kernel/random/boot_id"),
		"proc/devices":                   fmt.Sprintf("Character devices:\n%3d nvidia\n", a.numbers["nvidia0"][0]),
	}
	var drop []string
	for i, id := range []string{"a", "b"} {
		bus := fmt.Sprintf("0000:3%d:00.0", i)
		files["proc/driver/nvidia/gpus/"+bus+"/information"] = fmt.Sprintf("GPU UUID:\tGPU-%s\nDevice Minor:\t%d\n",
			id, i)
		drop = append(drop, fmt.Sprintf(`{"uuid":"GPU-%s","vendor":"nvidia","minor":"%d",`+
			`"resources":{"gpu-memory":"16Gi"},"topology":{"busID":%q}}`, id, i, bus))
		verbs := fmt.Sprintf("infiniband/uverbs%d", i)
		bus = adapter(i)
		files["sys/devices/pci0000:08/"+bus+"/"+verbs+"/uevent"] = fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\n",
			a.numbers[verbs][0], a.numbers[verbs][1], verbs)
		drop = append(drop, fmt.Sprintf(`{"type":"rdma","uuid":%q,"resources":{"rdma":"100"},"topology":{"busID":%q}}`,
			bus, bus))
	}
	files["var/run/tenon/device-infos/cards.json"] = "[" + strings.Join(drop, ",") + "]"
	if !describable {
		files["run/cdi"] = ""
	}
	a.Cleanup(func() {
		a.agent.Kill() // it must not see the tree go
		for _, at := range []string{"sys/devices/system", "sys/fs/cgroup", "run/cdi"} {
			if err := syscall.Unmount(filepath.Join(machineRoot, at), syscall.MNT_DETACH); err != nil &&
				(at != "run/cdi" || describable) {
				a.Fatalf("unmount %s, whose files are the machine's: %v", at, err)
			}
		}
		if err := os.RemoveAll(machineRoot); err != nil {
			a.Error(err)
		}
	})
	for name, text := range files {
		file := filepath.Join(machineRoot, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		testkit.Check(a, err)
	}
	class := machineRoot + "/sys/class/infiniband_verbs"
	err := os.MkdirAll(class, 0o755)
	for i := range 2 {
		name := fmt.Sprintf("uverbs%d", i)
		err = errors.Join(err, os.Symlink("../../devices/pci0000:08/"+adapter(i)+"/infiniband/"+name, class+"/"+name))
	}
	testkit.Check(a, err)
	a.mount("/sys/devices/system", machineRoot+"/sys/devices/system")
	a.mount("/sys/fs/cgroup", machineRoot+"/sys/fs/cgroup")
	if describable {
		a.mount(a.s.Path("cdi"), machineRoot+"/run/cdi")
	}
}

// adapter is the PCI address of an RDMA adapter.
func adapter(i int) string { return fmt.Sprintf("0000:%02d:00.0", 8+i) }

// mount shows a folder with all that is mounted below it at another place too.
func (a *accelerated) mount(source, target string) {
	a.Helper()
	err := os.MkdirAll(target, 0o755)
	if err == nil {
		err = syscall.Mount(source, target, "", syscall.MS_BIND|syscall.MS_REC, "")
	}
	if err != nil {
		a.Fatalf("mount %s at %s: %v", source, target, err)
	}
}

// layDev adds the files of the cards to /dev, for a runtime that looks for them there: a copy of the machine's, which
// no process outside of the stage sees, takes its place until the test ends.
func (a *accelerated) layDev() {
	a.Helper()
	dev := a.s.Path("dev")
	entries, err := os.ReadDir("/dev")
	testkit.Check(a, err)
	for _, e := range entries {
		from, to := filepath.Join("/dev", e.Name()), filepath.Join(dev, e.Name())
		switch {
		case e.IsDir():
			a.mount(from, to)
		case e.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(from)
			if err = errors.Join(err, os.MkdirAll(dev, 0o755), os.Symlink(link, to)); err != nil {
				a.Fatal(err)
			}
		case e.Type()&fs.ModeCharDevice != 0:
			info, err := e.Info()
			testkit.Check(a, err)
			a.makeFile(to, int(info.Sys().(*syscall.Stat_t).Rdev))
		}
	}
	for name, n := range a.numbers {
		a.makeFile(filepath.Join(dev, name), n[0]<<8|n[1])
	}
	stage.Bind(a, dev, "/dev")
}

func (a *accelerated) makeFile(at string, number int) {
	a.Helper()
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	if err == nil {
		err = syscall.Mknod(at, syscall.S_IFCHR|0o666, number)
	}
	if err == nil {
		err = os.Chmod(at, 0o666) // whatever the mask is
	}
	if err != nil {
		a.Fatalf("make %s: %v", at, err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	testkit.Check(t, err)
	return string(text)
}

// given allocates devices to a pod, as the scheduler does in the Binding.
func given(devices string) podOption {
	return func(p *corev1.Pod) { p.Annotations[annotation.DeviceAllocatedKey] = devices }
}

// trying lets every container of a pod try to open the files of all cards, for which it makes them: as root.
func (a *accelerated) trying(p *corev1.Pod) {
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64)}
		for _, n := range a.numbers {
			p.Spec.Containers[i].Args = append(p.Spec.Containers[i].Args, fmt.Sprintf("open=%d:%d", n[0], n[1]))
		}
	}
}

// says waits until the agent logs a message with a cause.
func (a *accelerated) says(message, cause string) {
	a.Helper()
	stage.Await(a, "the agent to log "+message, func() error {
		if _, after, _ := strings.Cut(a.agent.Log(), message); !strings.Contains(after, cause) {
			return fmt.Errorf("it logs no cause %q", cause)
		}
		return nil
	})
}

// mismatches checks how many containers the agent has found with other cards than their own.
func (a *accelerated) mismatches(want float64) {
	a.Helper()
	got, err := a.agent.Metric("tenon_agent_drift_total", `kind="DeviceMismatch"`)
	if err != nil || got != want {
		a.Errorf("tenon_agent_drift_total of DeviceMismatch is %v (%v), want %v", got, err, want)
	}
}

// uses checks that a container has device files of cards and may open them, and none of another card, and that the
// NVIDIA runtime would be asked for GPUs. No container without GPUs has the file that all GPUs share.
func (a *accelerated) uses(c *stage.Container, gpus string, files ...string) {
	a.Helper()
	stage.Await(a, "the probe in "+c.Name, func() error { _, err := c.Said("ready"); return err })
	if got, err := c.Said("env:NVIDIA_VISIBLE_DEVICES"); err != nil || got != gpus {
		a.Errorf("container %s has NVIDIA_VISIBLE_DEVICES=%s (%v), want %s", c.Name, got, err, gpus)
	}
	for name, n := range a.numbers {
		want, there := "EPERM", false
		for _, f := range files {
			if f == name {
				want, there = "ENXIO", true
			}
		}
		key := fmt.Sprintf("open:%d:%d", n[0], n[1])
		if got, err := c.Said(key); err != nil || got != want {
			a.Errorf("container %s opens %s (%s): %s (%v), want %s", c.Name, name, key, got, err, want)
		}
		if mode, err := c.Said("dev:/dev/" + name); (err == nil) != there || there && mode != "666" {
			a.Errorf("container %s has /dev/%s: %t, %s; want %t, for everyone", c.Name, name, err == nil, mode, there)
		}
	}
}

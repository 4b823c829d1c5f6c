//go:build e2e_guest

package guest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/test/e2e/node/guest/vm"
)

// pcie is a machine with a root complex on each of two NUMA nodes, and one on none. Adapters are NVMe controllers: of
// what this emulator has with virtual functions, the only one. They and the displays are what the kernel makes of them.
//
//	pci0000:40, node 0   40:01.0 port ─ 41:00.0 switch ─┬─ 42:00.0 port ─ 43:00.0 GPU-a
//	                                                    └─ 42:01.0 port ─ 44:00.0 adapter, functions 44:00.1, 44:00.2
//	                     40:02.0 port ─ 45:00.0 GPU-b
//	pci0000:80, node 1   80:01.0 port ─ 81:00.0 switch ─┬─ 82:00.0 port ─ 83:00.0 GPU-c
//	                                                    └─ 82:01.0 port ─ 84:00.0 adapter
//	pci0000:00, none     00:10.0 port ─ 01:00.0 GPU-d
var pcie = vm.Shape{
	Name: "pcie", Sockets: 2, Dies: 1, Cores: 2, Threads: 1, MemoryMiB: 1536, Distance: [][]int{{10, 21}, {21, 10}},
	Devices: []string{
		"pxb-pcie,id=root0,bus=pcie.0,bus_nr=64,numa_node=0",
		"pcie-root-port,id=port0,bus=root0,addr=1,chassis=1",
		"x3130-upstream,id=switch0,bus=port0",
		"xio3130-downstream,id=down0,bus=switch0,addr=0,chassis=2",
		"bochs-display,bus=down0,romfile=",
		"xio3130-downstream,id=down1,bus=switch0,addr=1,chassis=3",
		"nvme-subsys,id=subsystem",
		"nvme,bus=down1,serial=a,subsys=subsystem,multifunction=on,sriov_max_vfs=2,sriov_vq_flexible=4," +
			"sriov_vi_flexible=2",
		"pcie-root-port,id=port1,bus=root0,addr=2,chassis=4",
		"bochs-display,bus=port1,romfile=",
		"pxb-pcie,id=root1,bus=pcie.0,bus_nr=128,numa_node=1",
		"pcie-root-port,id=port2,bus=root1,addr=1,chassis=5",
		"x3130-upstream,id=switch1,bus=port2",
		"xio3130-downstream,id=down2,bus=switch1,addr=0,chassis=6",
		"bochs-display,bus=down2,romfile=",
		"xio3130-downstream,id=down3,bus=switch1,addr=1,chassis=7",
		"nvme,bus=down3,serial=b",
		"pcie-root-port,id=port3,bus=pcie.0,addr=0x10,chassis=8",
		"bochs-display,bus=port3,romfile=",
	},
}

// placed are the devices as the Device object has them: where the arguments of the emulator put them.
func placed() []string {
	return []string{
		"gpu GPU-a node 0 pci0000:40 0000:40:01.0 0000:41:00.0 0000:42:00.0 0000:43:00.0 functions []",
		"gpu GPU-b node 0 pci0000:40 0000:40:02.0 0000:45:00.0 functions []",
		"gpu GPU-c node 1 pci0000:80 0000:80:01.0 0000:81:00.0 0000:82:00.0 0000:83:00.0 functions []",
		"gpu GPU-d node -1 pci0000:00 0000:00:10.0 0000:01:00.0 functions []",
		"rdma 0000:44:00.0 node 0 pci0000:40 0000:40:01.0 0000:41:00.0 0000:42:01.0 0000:44:00.0 " +
			"functions [0000:44:00.1 0000:44:00.2]",
		"rdma 0000:84:00.0 node 1 pci0000:80 0000:80:01.0 0000:81:00.0 0000:82:01.0 0000:84:00.0 functions []",
	}
}

// numbers are the numbers of all device files, by their names in /dev. No driver of the guest has the majors.
func numbers() map[string]string {
	return map[string]string{
		"nvidia0": "195:0", "nvidia1": "195:1", "nvidia2": "195:2", "nvidia3": "195:3", "nvidiactl": "195:255",
		"infiniband/uverbs0": "231:192", "infiniband/uverbs1": "231:193", "infiniband/uverbs2": "231:194",
		"infiniband/uverbs3": "231:195",
	}
}

// drivers is a script that makes the virtual functions, and what no emulated device has: the files of drivers for GPUs
// and RDMA adapters. All else is the kernel's.
func drivers() string {
	var s strings.Builder
	s.WriteString(`set -e
echo 0 >/sys/bus/pci/devices/0000:44:00.0/sriov_drivers_autoprobe
echo 2 >/sys/bus/pci/devices/0000:44:00.0/sriov_numvfs
mkdir -p /dev/infiniband /run/cards/class/infiniband /run/cards/class/infiniband_verbs
mount -t tmpfs driver /proc/driver
printf 'Character devices:\n195 nvidia\n231 infiniband_verbs\n\nBlock devices:\n' >/run/cards/devices
mount --bind /run/cards/devices /proc/devices
`)
	for i, bus := range []string{"43", "45", "83", "01"} {
		fmt.Fprintf(&s, `at=/proc/driver/nvidia/gpus/0000:%s:00.0
mkdir -p $at
printf 'Model: T\nGPU UUID: GPU-%c\nDevice Minor: %d\n' >$at/information
`, bus, 'a'+i, i)
	}
	for i, function := range []string{"44:00.0", "44:00.1", "44:00.2", "84:00.0"} {
		fmt.Fprintf(&s, `at=/run/cards/0000:%s name=uverbs%d
mkdir -p $at/$name $at/ports/1
echo '4: ACTIVE' >$at/ports/1/state
printf "MAJOR=231\nMINOR=%d\nDEVNAME=infiniband/$name\n" >$at/$name/uevent
ln -s ../../..$at/$name /run/cards/class/infiniband_verbs/$name
ln -s ../../..$at /run/cards/class/infiniband/mlx5_%[2]d
`, function, i, 192+i)
	}
	for name, n := range numbers() {
		fmt.Fprintf(&s, "mknod -m 666 /dev/%s c %s\n", name, strings.Replace(n, ":", " ", 1))
	}
	s.WriteString("mount -t overlay -o lowerdir=/run/cards/class:/sys/class class /sys/class\n")
	return s.String()
}

func TestPCIeSwitches(t *testing.T) {
	g := begin(t, pcie)
	script(t, g, drivers())
	n := join(t, g, pcie, KubeletPolicy{CPUManager: "none", Reserved: "0"}, "--resync=2s")
	check(t, pcie, "bridges, NUMA nodes and virtual functions are published as they are", func(t *testing.T) {
		await(t, "the Device", func() error {
			got, err := n.devices(t)
			if diff := cmp.Diff(placed(), got); err == nil && diff != "" {
				err = fmt.Errorf("devices (-want +got):\n%s", diff)
			}
			return err
		})
	})
	var pairs *corev1.Pod
	check(t, pcie, "GPUs and adapters of a pod are below the same switches", func(t *testing.T) {
		const joint = `{"deviceTypes":["gpu","rdma"],"requiredScope":%q}`
		on := func(scope string) option { return with(annotation.DeviceJointAllocateKey, fmt.Sprintf(joint, scope)) }
		n.create(t, n.pod("three", "", "50m", "32Mi", using("300"), on("SamePCIeSwitch")))
		await(t, "pod three to find no place", func() error {
			p, err := n.plane.client.CoreV1().Pods(n.Name).Get(t.Context(), "three", metav1.GetOptions{})
			if err == nil && !strings.Contains(state(p), "Joint-Allocate") {
				err = errors.New(state(p))
			}
			return err
		})
		n.remove(t, "three")
		n.create(t, n.pod("pairs", "", "50m", "32Mi", using("200"), on("SamePCIeSwitch")))
		pairs = n.running(t, "pairs")[0]
		n.uses(t, pairs, "GPU-a,GPU-c", "infiniband/uverbs0", "infiniband/uverbs3", "nvidia0", "nvidia2", "nvidiactl")
		n.create(t, n.pod("beside", "", "50m", "32Mi", using("100"), on("SamePCIe")))
		n.uses(t, n.running(t, "beside")[0], "GPU-b", "infiniband/uverbs0", "nvidia1", "nvidiactl")
	})
	check(t, pcie, "a pod has the virtual function that it asks for", func(t *testing.T) {
		n.create(t, n.pod("function", "", "50m", "32Mi", using(""),
			with(annotation.DeviceAllocateHintKey, `{"rdma":{"vfSelector":{}}}`)))
		n.uses(t, n.running(t, "function")[0], "void", "infiniband/uverbs1")
	})
	if pairs == nil {
		t.Fatal("no pod has a GPU to go on with")
	}
	check(t, pcie, "another card's file in a running container is reported", func(t *testing.T) {
		own, _ := Containers(n.look(t), pairs.UID)
		script(t, n.Guest, fmt.Sprintf("mknod /proc/%d/root/dev/stray c 195 1", own[0].Processes[0].PID))
		n.awaitEvent(t, pairs.Name, func(e *corev1.Event) bool {
			return e.Reason == inject.ErrMismatch.Error() && strings.Contains(e.Message, "/dev/nvidia1")
		})
	})
}

// with annotates a pod.
func with(key, value string) option { return func(p *corev1.Pod) { p.Annotations[key] = value } }

// using lets a pod request a percentage of GPUs, "" for none, and a part of an adapter, and lets its container try to
// open the files of all.
func using(gpus string) option {
	return func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		for name, value := range map[corev1.ResourceName]string{
			annotation.ResourceGPU: gpus, annotation.ResourceRDMA: "25",
		} {
			if value != "" {
				c.Resources.Requests[name] = resource.MustParse(value)
				c.Resources.Limits[name] = resource.MustParse(value)
			}
		}
		c.SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64)}
		for _, n := range numbers() {
			c.Args = append(c.Args, "open="+n)
		}
	}
}

// devices are the lines of the Device object, in the form of placed.
func (n *node) devices(t *testing.T) ([]string, error) {
	t.Helper()
	object, err := n.plane.dynamic.Resource(devicev1alpha1.Resource()).Get(t.Context(), n.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	d, _, err := devicev1alpha1.Decode(text)
	if err != nil {
		return nil, err
	}
	links, _, err := annotation.ParseDeviceLinks(d.Annotations[annotation.DeviceLinksKey])
	var lines []string
	for _, device := range d.Spec.Devices {
		at, functions := device.Topology, []string{}
		chain := links.Bridges[at.BusID]
		for _, group := range device.VFGroups {
			for _, f := range group.VFs {
				functions = append(functions, f.BusID)
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s node %d %s %s functions %v", device.Type, device.ID, at.NodeID,
			strings.Join(chain, " "), at.BusID, functions))
		if !device.Health || !slices.Contains(chain, at.PCIEID) {
			err = errors.Join(
				err,
				fmt.Errorf("%s is below %s, with conditions %v", device.ID, at.PCIEID, device.Conditions),
			)
		}
	}
	slices.Sort(lines)
	return lines, err
}

// uses checks that a pod's container sees GPUs, has the files of its devices in /dev, and can open these alone.
func (n *node) uses(t *testing.T, p *corev1.Pod, gpus string, files ...string) {
	t.Helper()
	log, want := "", []string{"env:NVIDIA_VISIBLE_DEVICES=" + gpus}
	await(t, "the container of "+p.Name, func() (err error) {
		log = script(t, n.Guest, fmt.Sprintf("cat /var/log/pods/%s_%s_%s/main/0.log", n.Name, p.Name, p.UID))
		if !strings.Contains(log, " F ready=") {
			err = errors.New(log)
		}
		return err
	})
	for name, number := range numbers() {
		answer := "EPERM"
		if slices.Contains(files, name) {
			answer = "ENXIO"
			want = append(want, "dev:/dev/"+name+"=666")
		}
		want = append(want, "open:"+number+"="+answer)
	}
	var got []string
	for line := range strings.Lines(log) {
		_, said, _ := strings.Cut(strings.TrimSpace(line), " F ")
		for _, about := range []string{"env:NVIDIA_VISIBLE", "dev:/dev/nvidia", "dev:/dev/infiniband", "open:"} {
			if strings.HasPrefix(said, about) {
				got = append(got, said)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the container of %s (-want +got):\n%s", p.Name, diff)
	}
}

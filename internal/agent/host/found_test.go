package host_test

import (
	"archive/tar"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// tree is files, and links by the path from the root that they lead to.
type tree struct{ files, links map[string]string }

func newTree() tree { return tree{map[string]string{}, map[string]string{}} }

func (m tree) write(t *testing.T) host.Root {
	t.Helper()
	root := write(t, m.files)
	for name, target := range m.links {
		at := filepath.Join(root.Dir, name)
		testkit.Check(t, os.MkdirAll(filepath.Dir(at), 0o755))
		up := strings.Repeat("../", strings.Count(name, "/"))
		testkit.Check(t, os.Symlink(up+target, at))
	}
	return root
}

// pci adds a PCI device below bridges and returns its folder.
func (m tree) pci(chain string, numa int) string {
	at, bus := "sys/devices/"+chain, path.Base(chain)
	m.links["sys/bus/pci/devices/"+bus] = at
	m.files[at+"/numa_node"] = fmt.Sprintln(numa)
	return at
}

// character adds the character device of a class to a PCI device.
func (m tree) character(at, class, name string, major, minor int, file string) {
	m.links["sys/class/"+class+"/"+name] = at + "/" + class + "/" + name
	m.files[at+"/"+class+"/"+name+"/uevent"] = fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\n", major, minor, file)
}

// adapter adds an RDMA adapter whose ports are in states.
func (m tree) adapter(chain string, numa, n int, name string, states ...string) string {
	at := m.pci(chain, numa)
	m.links["sys/class/infiniband/"+name] = at + "/infiniband/" + name
	m.files[at+"/infiniband/"+name+"/node_type"] = "1: CA"
	for i, state := range states {
		port := fmt.Sprintf("%s/infiniband/%s/ports/%d/", at, name, i+1)
		m.files[port+"state"], m.files[port+"phys_state"] = state, "3: Disabled"
	}
	m.character(at, "infiniband_verbs", fmt.Sprint("uverbs", n), 231, 192+n, fmt.Sprint("infiniband/uverbs", n))
	return at
}

// server has 2 sockets with 2 PCI switches each, and below each switch 2 GPUs and 2 adapters with 2 virtual functions.
func server() tree {
	m := newTree()
	m.files["proc/devices"] = "Character devices:\n195 nvidia\n"
	for i := range 8 {
		socket, base := i/4, 0x10+0x20*(i/2)
		switched := fmt.Sprintf("pci0000:%02x/0000:%02x:01.0/0000:%02x:00.0/", base, base, base+1)
		below := func(slot int) string {
			return fmt.Sprintf("%s0000:%02x:%02x.0/0000:%02x", switched, base+2, slot, base+3+slot)
		}
		gpu := below(i%2) + ":00.0"
		m.pci(gpu, socket)
		m.files[driver+path.Base(gpu)+"/information"] = fmt.Sprintf(
			"Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-%d\nDevice Minor: \t %d\n", i, 7-i)
		nic := m.adapter(below(2+i%2)+":00.0", socket, i, fmt.Sprint("mlx5_", i), "4: ACTIVE")
		m.links[m.pci(below(2+i%2)+":00.7", socket)+"/physfn"] = nic // of a virtual machine: without a device file
		m.links[fmt.Sprintf("sys/class/infiniband/vf%d", i)] = "sys/devices/" + below(2+i%2) + ":00.7/infiniband/vf"
		for v := range 2 {
			at, name := fmt.Sprintf("%s:00.%d", below(2+i%2), 1+v), fmt.Sprintf("roce%dv%d", i, v)
			m.links[m.adapter(at, socket, 8+2*i+v, name)+"/physfn"] = nic
		}
	}
	return m
}

func found(t *testing.T, root host.Root) map[string]host.Dropped {
	t.Helper()
	all := map[string]host.Dropped{}
	for _, kind := range []host.CardKind{host.NVIDIA, host.AMD, host.RDMA, host.FPGA} {
		list, err := host.FindDevices(root, kind)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		for _, d := range list {
			all[d.Type+" "+d.UUID] = d
		}
	}
	return all
}

func TestDevicesOfAServer(t *testing.T) {
	t.Parallel()
	all := found(t, server().write(t))
	if len(all) != 16 {
		t.Errorf("devices %v, want 8 GPUs and 8 adapters: virtual functions are none", slices.Sorted(maps.Keys(all)))
	}
	bridges := slices.Clip([]string{"pci0000:30", "0000:30:01.0", "0000:31:00.0"})
	want := map[string]host.Dropped{
		"gpu GPU-3": {
			Type: "gpu", Vendor: "nvidia", Model: "NVIDIA H100 80GB HBM3", UUID: "GPU-3", Minor: "4",
			Topology: host.DroppedTopology{
				NodeID: "0", PCIEID: "pci0000:30", BusID: "0000:34:00.0", Bridges: append(bridges, "0000:32:01.0"),
			},
		},
		"rdma 0000:36:00.0": {
			Type: "rdma", UUID: "0000:36:00.0", Minor: "3", Resources: map[string]string{"rdma": "100"},
			VFs: []string{"0000:36:00.1", "0000:36:00.2"},
			Topology: host.DroppedTopology{
				NodeID: "0", PCIEID: "pci0000:30", BusID: "0000:36:00.0", Bridges: append(bridges, "0000:32:03.0"),
			},
		},
	}
	for name, d := range want {
		if diff := cmp.Diff(d, all[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if d := all["gpu GPU-7"]; d.Topology.NodeID != "1" || d.Minor != "0" {
		t.Errorf("the last GPU is %+v, want NUMA node 1 and minor 0", d)
	}
}

// cards is a server with GPUs of AMD, FPGAs and an adapter of which each has something special.
func cards() tree {
	m := newTree()
	for n, bus := range []string{"63", "68", "6d"} {
		at := m.pci("pci0000:60/0000:60:01.1/0000:"+bus+":00.0", -1)
		m.files[at+"/vendor"], m.files[at+"/unique_id"] = "0x1002", "id-"+bus
		m.files[at+"/mem_info_vram_total"], m.files[at+"/product_name"] = "206141652992", "MI300X OAM"
		m.character(at, "drm", fmt.Sprint("card", n), 226, n, fmt.Sprint("dri/card", n))
	}
	nodes := "sys/class/kfd/kfd/topology/nodes/"
	m.files[nodes+"0/properties"] = "cpu_cores_count 96\nsimd_count 0\nlocation_id 0\n"
	for n, at := range map[string]int{"1": 0x6300, "2": 0x6800} { // the third one is a display
		m.files[nodes+n+"/properties"] = fmt.Sprintf("simd_count 1216\nlocation_id %d\ndomain 0\n", at)
		for link, to := range []string{"0", "1", "2"} {
			kind := "11"
			if to == "0" || n == "2" { // PCIe
				kind = "2"
			}
			at := fmt.Sprintf("%s%s/io_links/%d/properties", nodes, n, link)
			m.files[at] = "type " + kind + "\nnode_to " + to + "\n"
		}
	}
	xilinx := m.pci("pci0000:88/0000:88:00.0/0000:89:00.1", 1)
	m.files[xilinx+"/vendor"] = "0x10ee"
	m.character(xilinx, "drm", "renderD131", 226, 131, "dri/renderD131")
	intel := m.pci("pci0000:b0/0000:b1:00.0", 1)
	port := intel + "/fpga_region/region0/dfl-port.0"
	m.files[port+"/uevent"] = "MAJOR=236\nMINOR=64\nDEVNAME=dfl-port.0\n"
	m.links["sys/bus/platform/devices/dfl-port.0"] = port
	m.links["sys/class/fpga_manager/fpga0"] = intel + "/fpga_manager/fpga0"
	m.files[intel+"/fpga_manager/fpga0/state"] = "write error"
	m.adapter("pci0000:00/0000:09:00.0", 0, 0, "bnxt_re0", "1: DOWN", "4: ACTIVE")
	m.adapter("pci0000:00/0000:0a:00.0", 0, 1, "mlx5_bond_0", "1: DOWN", "2: INIT")
	m.links["sys/class/infiniband/irdma0"] = m.pci("pci0000:00/0000:0b:00.0", 0) + "/infiniband/irdma0"
	m.files["sys/devices/pci0000:00/0000:0b:00.0/infiniband/irdma0/node_type"] = "1: CA"
	return m
}

func TestCardsOfOtherVendors(t *testing.T) {
	t.Parallel()
	all := found(t, cards().write(t))
	amd := host.Dropped{
		Type: "gpu", Vendor: "amd", Model: "MI300X OAM", UUID: "id-63", Minor: "0",
		Resources: map[string]string{"gpu-memory": "206141652992"},
		Topology: host.DroppedTopology{
			NodeID: "-1", PCIEID: "pci0000:60", BusID: "0000:63:00.0", Bridges: []string{"pci0000:60", "0000:60:01.1"},
			P2PLinks: []host.DroppedLink{{PeerUUID: "id-68", Type: "XGMI"}},
		},
	}
	if diff := cmp.Diff(amd, all["gpu id-63"]); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
	if links := all["gpu id-68"].Topology.P2PLinks; links != nil {
		t.Errorf("a link that is not XGMI: %+v", links)
	}
	status := map[string]string{}
	for name, d := range all {
		if status[name] = "works"; d.Status != nil {
			status[name] = d.Status.ErrCode + ": " + d.Status.ErrMessage
		}
	}
	want := map[string]string{
		"gpu id-63": "works", "gpu id-68": "works",
		"fpga 0000:89:00.1": "works", "fpga 0000:b1:00.0": "FPGAManager: fpga0: write error",
		"rdma 0000:09:00.0": "works",
		"rdma 0000:0a:00.0": "NoActivePort: port 1 of mlx5_bond_0 is DOWN (Disabled), " +
			"port 2 of mlx5_bond_0 is INIT (Disabled)",
		"rdma 0000:0b:00.0": "NoDeviceFile: its driver has no device file for it",
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// One file that cannot be read is named, and spoils no other device.
func TestABadFileSpoilsOneDevice(t *testing.T) {
	t.Parallel()
	const amd, nic = "sys/devices/pci0000:60/0000:60:01.1/", "sys/devices/pci0000:00/0000:0a:00.0/"
	for file, kind := range map[string]host.CardKind{
		amd + "0000:63:00.0/mem_info_vram_total":                                 host.AMD,
		amd + "0000:63:00.0/numa_node":                                           host.AMD,
		"sys/class/kfd/kfd/topology/nodes/0/properties":                          host.AMD,
		nic + "infiniband/mlx5_bond_0/ports/1/state":                             host.RDMA,
		nic + "numa_node":                                                        host.RDMA,
		"sys/devices/pci0000:b0/0000:b1:00.0/numa_node":                          host.FPGA,
		"sys/devices/pci0000:88/0000:88:00.0/0000:89:00.1/drm/renderD131/uevent": host.FPGA,
	} {
		m := cards()
		delete(m.files, file)
		m.files[file+"/x"] = "" // a folder in its place
		list, err := host.FindDevices(m.write(t), kind)
		whole, _ := host.FindDevices(cards().write(t), kind)
		if err == nil || !strings.Contains(err.Error(), path.Base(file)) {
			t.Errorf("%s: err = %v, want one that names it", file, err)
		}
		changed := 0
		for i := range min(len(list), len(whole)) {
			if !cmp.Equal(list[i], whole[i]) {
				changed++
			}
		}
		if len(list) != len(whole) || changed > 1 {
			t.Errorf("%s: got %+v, want all but one device as in %+v", file, list, whole)
		}
	}
}

// pciOf unpacks what a capture has of PCI devices and of NVIDIA's driver.
func pciOf(t *testing.T, archive string) host.Root {
	t.Helper()
	f, err := os.Open(archive)
	testkit.Check(t, err)
	defer f.Close()
	m := tree{map[string]string{}, map[string]string{}}
	for r := tar.NewReader(bzip2.NewReader(f)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return m.write(t)
		}
		testkit.Check(t, err)
		_, name, _ := strings.Cut(h.Name, "/")
		text, err := io.ReadAll(r)
		switch {
		case err != nil:
			t.Fatal(err)
		case h.Typeflag == tar.TypeSymlink && strings.HasPrefix(name, "sys/bus/pci/devices/"):
			m.links[name] = strings.TrimPrefix(path.Join(path.Dir(name), h.Linkname), "/")
		case h.Typeflag != tar.TypeReg:
		case strings.HasPrefix(name, "proc/driver/nvidia/"),
			strings.Contains(name, "/pci") && path.Base(name) == "numa_node":
			m.files[name] = string(text)
		}
	}
}

// The captures have PCI devices, and no device that pods could have: their GPUs are without UUID and device files.
func TestPCIDevicesOfCaptures(t *testing.T) {
	t.Parallel()
	place := func(numa, root, bus string, bridges ...string) host.DroppedTopology {
		return host.DroppedTopology{NodeID: numa, PCIEID: root, BusID: bus, Bridges: append([]string{root}, bridges...)}
	}
	want := map[string][]host.DroppedTopology{
		"nvidiagpunumanodes": {{BusID: "0004:05:00.0"}}, // a folder without a path to it
		"40intel64-4n10c+pci-conflicts": {
			place("-1", "pci0000:00", "0000:00:03.0"), place("-1", "pci0000:00", "0000:01:00.0", "0000:00:03.0"),
		},
		"32intel64-2p8co2t+8ve": {
			place("0", "pci0000:17", "0000:1b:00.0", "0000:17:00.0", "0000:18:00.0", "0000:19:08.0"),
			place("0", "pci0000:3a", "0000:41:00.0", "0000:3a:00.0", "0000:3b:00.0", "0000:3c:14.0"),
		},
	}
	for _, archive := range testkit.Captures(t) {
		name := testkit.CaptureName(archive)
		if want[name] == nil {
			continue
		}
		root := pciOf(t, archive)
		for _, kind := range []host.CardKind{host.NVIDIA, host.AMD, host.RDMA, host.FPGA} {
			if list, err := host.FindDevices(root, kind); len(list) > 0 {
				t.Errorf("%s: %s: got %+v, %v, want none", name, kind, list, err)
			}
		}
		for _, p := range want[name] {
			got, err := host.Place(root, p.BusID)
			if diff := cmp.Diff(p, got); diff != "" || err != nil {
				t.Errorf("%s: %v, (-want +got):\n%s", name, err, diff)
			}
		}
	}
}

// A MIG device gets the files that open it and those of its GPU, if there is any; of both, a driver says the numbers.
func TestFilesOfSlices(t *testing.T) {
	t.Parallel()
	const at = "proc/driver/nvidia/capabilities/gpu1/mig/gi3"
	root := accelerated(t, func(files map[string]string) {
		files["proc/devices"] = strings.Replace(files["proc/devices"], "510", "509 nvidia-caps\n510", 1)
		files[at+"/access"], files[at+"/ci0/access"] = "DeviceFileMinor: 30\n", "DeviceFileMinor: 31\n"
		files[at+"/ci1/access"] = "DeviceFileMode: 292\n"
	})
	want := []host.DeviceFile{
		{Path: "/dev/nvidia-caps/nvidia-cap30", Major: 509, Minor: 30},
		{Path: "/dev/nvidia-caps/nvidia-cap31", Major: 509, Minor: 31},
	}
	got, err := host.SliceFiles(root, 1, 3, 0)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Fatalf("%v, (-want +got):\n%s", err, diff)
	}
	for _, missing := range [][3]int{{1, 3, 1}, {1, 4, 0}, {0, 3, 0}} {
		if got, err := host.SliceFiles(root, missing[0], missing[1], missing[2]); err == nil {
			t.Errorf("%v: got %v", missing, got)
		}
	}
	if _, err := host.SliceFiles(accelerated(t), 1, 3, 0); err == nil || !strings.Contains(err.Error(), "nvidia-caps") {
		t.Errorf("without the driver of the files: %v", err)
	}
	slice := func(id, gpu string, files ...host.DeviceFile) host.Dropped {
		return host.Dropped{Type: "gpu", UUID: id, Files: files, Labels: map[string]string{"node.tenon.sh/parent": gpu}}
	}
	cards := host.Cards{List: []host.Card{{
		Kind: host.NVIDIA, ID: "GPU-b", BusID: "0000:3b:00.0", Files: []host.DeviceFile{{Path: "/dev/nvidia1"}},
	}, {Kind: host.NVIDIA, ID: "GPU-c"}}}
	lost := slice("MIG-5", "GPU-b", want...)
	lost.IsLost = true
	before := len(cards.List)
	cards.Add([]host.Dropped{
		slice("MIG-1", "GPU-b", want...), slice("MIG-1", "GPU-b", want[0]), slice("MIG-2", "GPU-b"),
		slice("MIG-3", "GPU-c", want...), slice("MIG-4", "GPU-d", want...), lost,
		{Type: "gpu", UUID: "GPU-e"},
	})
	if diff := cmp.Diff([]host.Card{{
		Kind: host.NVIDIA, ID: "MIG-1", BusID: "0000:3b:00.0/MIG-1",
		Files: append([]host.DeviceFile{{Path: "/dev/nvidia1"}}, want...),
	}}, cards.List[before:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A device whose type no driver of ours serves gets the files that its drop file names, and no others.
func TestFilesOfDroppedDevices(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"type":"dpu","topology":{"busID":"0000:01:00.0"},"deviceFiles":[{"path":"/dev/x","major":240,"minor":3}]`: "",

		`"type":"dpu","deviceFiles":[{"path":"/etc/passwd","major":240,"minor":3}]`: `deviceFiles: "/etc/passwd" with`,
		`"type":"dpu","deviceFiles":[{"path":"/dev/../x","major":240}]`:             `"/dev/../x" with`,
		`"type":"dpu","deviceFiles":[{"path":"/dev/dpu0"}]`:                         `0:0, want a path below /dev`,
		`"type":"rdma","deviceFiles":[{"path":"/dev/dpu0","major":1}]`:              "a rdma has the files that its",
		`"deviceFiles":[{"path":"/dev/nvidia0","major":195}]`:                       "a gpu has the files",
		`"labels":{"node.tenon.sh/parent":"b"},"deviceFiles":[{"path":"/dev/nvidia0","major":195}]`: "want a path " +
			"below /dev/nvidia-caps, a major",
		`"type":"nvidia","deviceFiles":[{"path":"/dev/nvidia0","major":195}]`: "a nvidia has the files",
	} {
		text = `[{"uuid":"a",` + text + "}]"
		root := drop(t, map[string]string{"var/run/tenon/device-infos/f.json": text})
		list, err := host.ReadDropped(root)
		if len(list) != 1 || (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v, want one device, and %q", text, list, err, want)
		}
		cards, err := host.ReadCards(root)
		if err != nil || len(cards.List) != len(list[0].Files) || want != "" && len(cards.List) > 0 {
			t.Errorf("%s: cards %+v, %v", text, cards.List, err)
		}
		if want != "" {
			continue
		}
		dpu := host.Card{
			Kind: "dpu", ID: "a", BusID: "0000:01:00.0",
			Files: []host.DeviceFile{{Path: "/dev/x", Major: 240, Minor: 3}},
		}
		if diff := cmp.Diff([]host.Card{dpu}, cards.List); diff != "" {
			t.Errorf("cards (-want +got):\n%s", diff)
		}
	}
}

package machine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// board is the devices of a machine: of each type as many on each NUMA node, and under each PCI root complex. Fields
// are those of presets.json.
type board struct {
	GPUs, NICs, FPGAs int
	Vendor, Model     string // of the GPUs
	MemoryGiB         int64  // of a GPU
	Link              string // what joins GPUs directly: NVLink, XGMI
	Meshes            []mesh
	RootComplexes     int
}

// mesh is GPUs of which each is linked to each other one with so many lanes.
type mesh struct {
	Lanes int32
	GPUs  []int
}

// Devices are the devices of the machine with this name, as a drop file lists them; equal names have equal UUIDs. Those
// of a capture are the ones that it has.
func (d Description) Devices(name string) []host.Dropped {
	if d.capture != "" {
		return d.captured
	}
	numa, b := d.Spec(), d.board
	place := func(i, count int) host.DroppedTopology {
		node := i * len(numa.NUMA) / count
		at := host.DroppedTopology{
			SocketID: "0", NodeID: strconv.Itoa(numa.NUMA[node].ID),
			PCIEID: fmt.Sprintf("pci0000:%02x", 0x10*(i*b.RootComplexes/count+1)),
		}
		for _, c := range numa.CPUs {
			if c.NUMA == numa.NUMA[node].ID {
				at.SocketID = strconv.Itoa(c.Socket)
			}
		}
		return at
	}
	var list []host.Dropped
	for i := range b.GPUs {
		gpu := host.Dropped{
			Type: "gpu", Vendor: b.Vendor, Model: b.Model, UUID: uuidOf(name, i), Minor: strconv.Itoa(i),
			Resources: map[string]string{"gpu-core": "100", "gpu-memory": strconv.FormatInt(b.MemoryGiB, 10) + "Gi"},
			Topology:  place(i, b.GPUs),
		}
		gpu.Topology.BusID = fmt.Sprintf("0000:%02x:00.0", 0x11+4*i)
		gpu.Topology.P2PLinks = b.linksOf(i)
		if b.Link == "NVLink" {
			gpu.Topology.LaneBandwidth = "25G" // of the versions 2 to 4
		}
		list = append(list, gpu)
	}
	others := func(kind string, n, bus int) {
		for i := range n {
			o := host.Dropped{
				Type: kind, Minor: strconv.Itoa(i), Resources: map[string]string{kind: "100"}, Topology: place(i, n),
				UUID: fmt.Sprintf("0000:%02x:00.0", bus+4*i),
			}
			o.Topology.BusID = o.UUID
			list = append(list, o)
		}
	}
	others("rdma", b.NICs, 0x12)
	others("fpga", b.FPGAs, 0x13)
	return list
}

// linksOf lists the links of a GPU, those of one mesh together.
func (b *board) linksOf(gpu int) (links []host.DroppedLink) {
	for _, m := range b.Meshes {
		var peers []string
		in := false
		for _, peer := range m.GPUs {
			if in = in || peer == gpu; peer != gpu {
				peers = append(peers, strconv.Itoa(peer))
			}
		}
		if in {
			links = append(links, host.DroppedLink{PeerMinor: strings.Join(peers, ","), Type: b.Link, Count: m.Lanes})
		}
	}
	return links
}

func uuidOf(name string, gpu int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", name, gpu))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}

// devices writes a drop file: that is how the agent learns of devices without a driver.
func (w *writer) devices(list []host.Dropped) {
	if len(list) == 0 {
		return
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		w.err = err
		return
	}
	w.file(host.DropDirs()[0]+"/simulated.json", string(text))
}

// drivers writes what the drivers of devices say of their device files: the agent gives containers those of the devices
// that are theirs.
func (w *writer) drivers(list []host.Dropped) {
	const nvidia, uvm = 195, 510
	count := map[host.CardKind]int{}
	for i := range list {
		d := &list[i]
		kind := host.CardKind(d.Type)
		if d.Type == "gpu" {
			kind = host.CardKind(d.Vendor)
		}
		n := count[kind]
		count[kind]++
		switch kind {
		case host.NVIDIA:
			w.file("proc/driver/nvidia/gpus/"+d.Topology.BusID+"/information", fmt.Sprintf(
				"Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %s", d.Model, d.UUID,
				d.Topology.BusID, d.Minor))
		case host.AMD:
			w.file(pciFolder(d)+"/vendor", "0x1002")
			w.file(pciFolder(d)+"/unique_id", d.UUID)
			w.link("sys/bus/pci/devices/"+d.Topology.BusID, "../../../../"+pciFolder(d))
			w.serve(d, class{"sys/class/drm", "../../../", "drm", "dri/", 226}, fmt.Sprint("renderD", 128+n), 128+n)
		case host.RDMA:
			w.serve(d, class{"sys/class/infiniband_verbs", "../../../", "infiniband_verbs", "infiniband/", 231},
				fmt.Sprint("uverbs", n), 192+n)
		case host.FPGA:
			w.serve(d, class{"sys/bus/platform/devices", "../../../../", "fpga_region/region0", "", 236},
				fmt.Sprint("dfl-port.", n), n)
		}
	}
	if count[host.NVIDIA] > 0 {
		w.file("proc/devices", fmt.Sprintf("Character devices:\n%d nvidia\n%d nvidia-uvm", nvidia, uvm))
	}
	if count[host.AMD] > 0 {
		w.file("sys/class/kfd/kfd/uevent", "MAJOR=234\nMINOR=0\nDEVNAME=kfd")
	}
	if count[host.RDMA] > 0 {
		w.file("sys/class/misc/rdma_cm/uevent", "MAJOR=10\nMINOR=58\nDEVNAME=infiniband/rdma_cm")
	}
}

// pciFolder is where sysfs has a PCI device.
func pciFolder(d *host.Dropped) string {
	return "sys/devices/" + d.Topology.PCIEID + "/" + d.Topology.BusID
}

// class is a folder of sysfs with links to the devices that one driver serves.
type class struct {
	dir, up string // up leads to the root from it
	below   string // folder of a device, in that of its PCI device
	dev     string // folder of its file, in /dev
	major   int
}

// serve writes a character device of a PCI device, and the link to it in its class.
func (w *writer) serve(d *host.Dropped, c class, name string, minor int) {
	at := pciFolder(d) + "/" + c.below + "/" + name
	w.file(at+"/uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s%s", c.major, minor, c.dev, name))
	w.link(c.dir+"/"+name, c.up+at)
}

package machine

import (
	"fmt"

	"github.com/tenon-project/tenon/internal/agent/host"
)

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

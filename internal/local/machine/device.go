package machine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/tenon-project/tenon/internal/agent/host"
)

// board is the GPUs and NICs of a machine: as many on each NUMA node, and under each PCI root complex.
type board struct {
	model         string // of the GPUs
	gpus, nics    int
	memory        int64 // bytes of a GPU
	lanes         int32 // NVLinks from each GPU to each other; 0 = none
	rootComplexes int
}

// devices writes a drop file: that is how the agent learns of devices without a driver.
func (w *writer) devices(b board) {
	if b.gpus == 0 {
		return
	}
	var list []host.Dropped
	place := func(i, of int) host.DroppedTopology {
		root, node := i*b.rootComplexes/of, i*len(w.spec.NUMA)/of
		return host.DroppedTopology{
			SocketID: strconv.Itoa(w.socketOf(node)), NodeID: strconv.Itoa(w.spec.NUMA[node].ID),
			PCIEID: fmt.Sprintf("pci0000:%02x", 0x10*(root+1)),
		}
	}
	for i := range b.gpus {
		d := host.Dropped{
			Vendor: "nvidia", Model: b.model, UUID: "GPU-" + string(uuid.NewUUID()), Minor: strconv.Itoa(i),
			Resources: map[string]string{"gpu-core": "100", "gpu-memory": strconv.FormatInt(b.memory>>30, 10) + "Gi"},
			Topology:  place(i, b.gpus),
		}
		d.Topology.BusID = fmt.Sprintf("0000:%02x:00.0", 0x11+4*i)
		var peers []string
		for peer := range b.gpus {
			if peer != i {
				peers = append(peers, strconv.Itoa(peer))
			}
		}
		if b.lanes > 0 {
			d.Topology.P2PLinks = []host.DroppedLink{
				{PeerMinor: strings.Join(peers, ","), Type: "NVLink", Count: b.lanes},
			}
		}
		list = append(list, d)
	}
	for i := range b.nics {
		d := host.Dropped{
			Type: "rdma", Minor: strconv.Itoa(i), Resources: map[string]string{"rdma": "100"},
			Topology: place(i, b.nics),
		}
		d.UUID = fmt.Sprintf("0000:%02x:00.0", 0x12+4*i)
		d.Topology.BusID = d.UUID
		list = append(list, d)
	}
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		w.err = err
		return
	}
	w.file(host.DropDirs()[0]+"/simulated.json", string(text))
}

func (w *writer) socketOf(node int) int {
	for _, c := range w.spec.CPUs {
		if c.NUMA == w.spec.NUMA[node].ID {
			return c.Socket
		}
	}
	return 0
}

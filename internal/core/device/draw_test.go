package device_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
)

// server is a random machine: GPUs, NICs and a type of its own, on up to three NUMA nodes, links and all.
type server struct {
	rng  *rand.Rand
	spec device.Spec
}

func drawServer(t *rapid.T, gpus, nics int) *server {
	s := &server{rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "server"), 0))}
	s.add(device.GPU, 1+s.rng.IntN(gpus))
	if nics > 0 {
		s.add(device.RDMA, s.rng.IntN(nics+1))
		s.add("dpu", s.rng.IntN(3))
	}
	s.links()
	return s
}

// add adds n devices of a type at random places.
func (s *server) add(kind device.Type, n int) {
	for i := range n {
		id := fmt.Sprintf("%s-%d", kind, i)
		d := device.Device{
			Type: kind, ID: id, Minor: int32(s.rng.IntN(4)), Module: int32(i), Healthy: s.rng.IntN(12) > 0,
			Labels: map[string]string{"color": []string{"red", "blue"}[s.rng.IntN(2)]}, Location: s.location(),
		}
		switch kind {
		case device.GPU:
			d.Total[device.Bytes] = []int64{0, 10, 101, 80 * gib}[s.rng.IntN(4)]
		case "dpu":
			d.Total[device.Share] = 1
		case device.RDMA:
			for j := range s.rng.IntN(3) {
				d.VFs = append(d.VFs, device.VF{
					Bus: fmt.Sprintf("%s.%d", id, 2-j), Labels: map[string]string{"type": strconv.Itoa(s.rng.IntN(2))},
				})
			}
		}
		s.spec.Devices = append(s.spec.Devices, d)
	}
}

// location is a place under one of three root complexes, each with two bridges that lead to two more.
func (s *server) location() device.Location {
	root := s.rng.IntN(3)
	l := device.Location{
		NUMAID: []int{0, 7, -1}[min(root, s.rng.IntN(6))], PCIe: "pci" + strconv.Itoa(root),
		Bus: fmt.Sprintf("%02d:%02d", root, s.rng.IntN(100)),
	}
	if s.rng.IntN(5) > 0 {
		port := l.PCIe + "-" + strconv.Itoa(s.rng.IntN(2))
		l.Bridges = []string{l.PCIe, port}
		for range s.rng.IntN(3) {
			port += "-" + strconv.Itoa(s.rng.IntN(2))
			l.Bridges = append(l.Bridges, port)
		}
	} else if s.rng.IntN(3) == 0 {
		l.PCIe = ""
	}
	return l
}

// links joins random devices, some in one direction with fewer lanes than in the other.
func (s *server) links() {
	if len(s.spec.Devices) == 0 {
		return
	}
	some := func() *device.Device { return &s.spec.Devices[s.rng.IntN(len(s.spec.Devices))] }
	for range s.rng.IntN(8) {
		a, b := some(), some()
		s.spec.Links = append(s.spec.Links, device.Link{
			Type: a.Type, A: a.ID, B: b.ID, Lanes: int64(s.rng.IntN(5)),
		})
	}
	if s.rng.IntN(4) == 0 {
		lanes := map[string]int64{"gone": 3}
		for range s.rng.IntN(6) {
			lanes[some().ID] = int64(1 + s.rng.IntN(18))
		}
		s.spec.Switches = append(s.spec.Switches, device.Switch{Type: device.GPU, Lanes: lanes})
	}
}

// drawRequest draws a valid pod of up to three containers that asks for some of the types.
func drawRequest(t *rapid.T, rng *rand.Rand, kinds device.Kinds) (device.Pod, *device.Request) {
	menu := []asks{
		{device.NVIDIAGPU: 1},
		{device.NVIDIAGPU: 2},
		{device.GPUPercent: 50},
		{device.GPUPercent: 200},
		{device.GPUCore: 30, device.GPUMemory: 5},
		{device.GPURatio: 40},
		{device.GPUShared: 2, device.GPURatio: 50},
		{device.RDMAShare: 1},
		{device.RDMAShare: 60},
		{device.RDMAShare: 200},
		{"example.com/dpu": 1},
		{device.GPUPercent: 50, device.RDMAShare: 50},
		{device.NVIDIAGPU: 3},
		{device.NVIDIAGPU: 2, device.RDMAShare: 100},
		{device.RDMAShare: 30, "example.com/dpu": 1},
		{device.RDMAShare: 30, "example.com/dpu": 2, device.NVIDIAGPU: 1},
	}
	var p device.Pod
	for i := range 1 + rng.IntN(3) {
		c := device.Container{Name: "c" + strconv.Itoa(i), Role: device.Role(rng.IntN(3))}
		if i == 0 || rng.IntN(3) == 0 {
			c.Requests = menu[rng.IntN(len(menu))]
			c.Limits = c.Requests
		}
		p.Containers = append(p.Containers, c)
	}
	p.Hints = map[device.Type]device.Hint{}
	for _, kind := range []device.Type{device.GPU, device.RDMA} {
		if rng.IntN(4) == 0 {
			p.Hints[kind] = drawHint(rng, kind)
		}
	}
	if rng.IntN(2) == 0 {
		p.Joint.Types = []device.Type{device.GPU, device.RDMA}
		if rng.IntN(4) == 0 {
			p.Joint.Types[0] = "dpu"
		}
		if rng.IntN(3) == 0 {
			slices.Reverse(p.Joint.Types)
		}
		p.Joint.Scope = []device.JointScope{device.Anywhere, device.SamePCIe, device.SamePCIeSwitch}[rng.IntN(3)]
	}
	r, faults := device.NewRequest(p, kinds)
	if len(faults) > 0 { // more than one NIC of all
		delete(p.Hints, device.RDMA)
		r, faults = device.NewRequest(p, kinds)
	}
	if len(faults) > 0 {
		t.Fatalf("%+v: %v", p, faults)
	}
	return p, r
}

func drawHint(rng *rand.Rand, kind device.Type) device.Hint {
	var h device.Hint
	levels := []device.Level{
		device.AnyLevel, device.DeviceLevel, device.PCIeLevel, device.NUMALevel, device.MachineLevel,
	}
	switch rng.IntN(6) {
	case 0:
		h.Selector = device.Selector{{Key: "color", Operator: device.In, Values: []string{"red"}}}
	case 1:
		h.Scope = levels[rng.IntN(5)]
	case 2:
		h.Exclusive = levels[rng.IntN(3)]
	case 3:
		if kind == device.RDMA {
			h.VF = &device.Selector{{Key: "type", Operator: device.NotIn, Values: []string{"1"}}}
		}
	case 4:
		h.Strategy = []device.Strategy{device.ByAmount, device.ApplyForAll, device.RequestsAsCount}[rng.IntN(3)]
	}
	return h
}

func dpu() device.Kinds { return device.Kinds{{Type: "dpu", Resource: "example.com/dpu", Unit: 1}} }

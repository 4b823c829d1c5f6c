package host

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// FindDevices describes the devices of a kind by what sysfs and procfs have of them. Of NVIDIA's GPUs they do not have
// the memory. GPUs of AMD are those that the compute driver serves. Virtual functions are part of their adapter, which
// works while one of its ports is active. The error names the first file that cannot be read; a device is described as
// far as its files can be.
func FindDevices(root Root, kind CardKind) (list []Dropped, err error) {
	err = surveyCards(root, kind, func(s *cardSurvey) {
		cards := s.cards()
		functions := map[string][]string{}
		for _, c := range cards {
			if c.Parent != "" && len(c.Files) > 0 {
				functions[c.Parent] = append(functions[c.Parent], c.BusID)
			}
		}
		for i := range cards {
			if c := &cards[i]; c.Parent == "" && c.ID != "" {
				list = append(list, s.describe(c))
				list[len(list)-1].VFs = functions[c.BusID]
				s.next()
			}
		}
		if kind == AMD {
			list = s.serveAMD(list)
			s.next()
		}
	})
	return list, err
}

// Place reads where a PCI device is.
func Place(root Root, bus string) (at DroppedTopology, err error) {
	err = within(root, func(t *tree) { at = t.place(bus) })
	return at, err
}

func (s *cardSurvey) describe(c *Card) Dropped {
	d := Dropped{Type: c.Kind.Type(), UUID: c.ID, Topology: s.place(c.BusID)}
	at := path.Join(pciDevices, c.BusID)
	switch c.Kind {
	case NVIDIA:
		d.Vendor, d.Model = "nvidia", pairs(s.text(path.Join(nvidiaGPUs, c.BusID, "information")), ":")["Model"]
	case AMD:
		d.Vendor, d.Model = "amd", s.text(path.Join(at, "product_name"))
		if vram, ok := s.number(path.Join(at, "mem_info_vram_total")); ok && vram > 0 {
			d.Resources = map[string]string{"gpu-memory": strconv.FormatInt(vram, 10)}
		}
	case RDMA:
		d.Resources, d.Status = map[string]string{d.Type: "100"}, s.portStatus(c.BusID)
	case FPGA:
		d.Resources, d.Status = map[string]string{d.Type: "100"}, s.managerStatus(c.BusID)
	}
	if len(c.Files) == 0 {
		d.Status = Fails("NoDeviceFile", "its driver has no device file for it")
	} else {
		file := c.Files[0].Path
		d.Minor = file[len(strings.TrimRight(file, "0123456789")):]
	}
	return d
}

// place reads where a PCI device is: the path of its folder is the chain of bridges. A NUMA node of -1 is not known.
func (t *tree) place(bus string) DroppedTopology {
	folder := path.Join(pciDevices, bus)
	link, _ := t.root.Readlink(folder)
	at := DroppedTopology{BusID: bus}
	for _, part := range strings.Split(path.Dir(link), "/") {
		switch {
		case strings.HasPrefix(part, "pci") && strings.Count(part, ":") == 1:
			at.PCIEID, at.Bridges = part, []string{part} // below a bridge of Intel's VMD there is another root
		case len(at.Bridges) > 0 && isPCI(part):
			at.Bridges = append(at.Bridges, part)
		}
	}
	if n, ok := t.number(path.Join(folder, "numa_node")); ok {
		at.NodeID = strconv.FormatInt(max(n, -1), 10)
	}
	return at
}

// portStatus returns why an RDMA adapter does not work: none of its ports is active. nil if it works, and if it has no
// known port.
func (s *cardSurvey) portStatus(bus string) *DroppedStatus {
	var states []string
	for _, adapter := range s.adapters[bus] {
		for _, port := range s.numbered(path.Join(adapter, "ports"), "") {
			at := path.Join(adapter, "ports", strconv.Itoa(port))
			_, state, _ := strings.Cut(s.text(path.Join(at, "state")), ": ")
			if state == "ACTIVE" {
				return nil
			}
			_, physical, _ := strings.Cut(s.text(path.Join(at, "phys_state")), ": ")
			states = append(states, fmt.Sprintf("port %d of %s is %s (%s)", port, path.Base(adapter), state, physical))
		}
	}
	if len(states) == 0 {
		return nil
	}
	return Fails("NoActivePort", "%s", strings.Join(states, ", "))
}

// managerStatus returns what is wrong by the managers of an FPGA; nil for nothing.
func (s *cardSurvey) managerStatus(bus string) *DroppedStatus {
	const managers = "sys/class/fpga_manager"
	names := s.names(managers)
	slices.Sort(names)
	for _, name := range names {
		link, _ := s.root.Readlink(path.Join(managers, name))
		state := s.text(path.Join(managers, name, "state"))
		if lastPCI(link) == bus && strings.Contains(state, "error") {
			return Fails("FPGAManager", "%s: %s", name, state)
		}
	}
	return nil
}

// serveAMD keeps the GPUs that the compute driver serves, and adds what joins them: links of type 11 are XGMI.
func (s *cardSurvey) serveAMD(list []Dropped) (served []Dropped) {
	const nodes = "sys/class/kfd/kfd/topology/nodes"
	at := map[string][]int{} // nodes by PCI address: a GPU can be partitioned into several
	uuids := map[string]string{}
	for _, n := range s.numbered(nodes, "") {
		s.next()
		facts := pairs(s.text(path.Join(nodes, strconv.Itoa(n), "properties")), " ")
		where, err := strconv.ParseUint(facts["location_id"], 10, 16)
		domain, _ := strconv.ParseUint(facts["domain"], 10, 32)
		if err != nil || facts["simd_count"] == "" || facts["simd_count"] == "0" {
			continue // a CPU
		}
		bus := fmt.Sprintf("%04x:%02x:%02x.%x", domain, where>>8, where>>3&0x1f, where&7)
		at[bus] = append(at[bus], n)
		if i := slices.IndexFunc(list, func(d Dropped) bool { return d.Topology.BusID == bus }); i >= 0 {
			uuids[strconv.Itoa(n)] = list[i].UUID
		}
	}
	for _, d := range list {
		peers := map[string]bool{d.UUID: true}
		for _, n := range at[d.Topology.BusID] {
			links := path.Join(nodes, strconv.Itoa(n), "io_links")
			for _, link := range s.numbered(links, "") {
				s.next()
				facts := pairs(s.text(path.Join(links, strconv.Itoa(link), "properties")), " ")
				if peer := uuids[facts["node_to"]]; facts["type"] == "11" && peer != "" && !peers[peer] {
					peers[peer] = true
					d.Topology.P2PLinks = append(d.Topology.P2PLinks, DroppedLink{PeerUUID: peer, Type: "XGMI"})
				}
			}
		}
		if len(at[d.Topology.BusID]) > 0 {
			served = append(served, d)
		}
	}
	return served
}

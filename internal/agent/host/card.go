package host

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
)

// CardKind is whose driver serves a card.
type CardKind string

// Kinds of cards. Cards of drop files are of the kind that is named like their type.
const (
	NVIDIA CardKind = "nvidia"
	AMD    CardKind = "amd"
	RDMA   CardKind = "rdma"
	FPGA   CardKind = "fpga"
)

// Type returns the type of device that Device objects and allocations give the kind.
func (k CardKind) Type() annotation.DeviceType {
	if k == NVIDIA || k == AMD {
		return annotation.DeviceGPU
	}
	return string(k)
}

// DeviceFile is a character device.
type DeviceFile struct {
	Path  string `json:"path"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// Card is a PCI device that containers use through device files: a GPU, an RDMA adapter or a virtual function of one,
// an FPGA.
type Card struct {
	Kind CardKind
	// ID is the UUID of a GPU, the PCI address of another card; "" for a GPU whose driver does not report its UUID yet.
	ID string
	// BusID is the PCI address, or the ID of a card of a drop file that has none; Parent is that of the adapter of a
	// virtual function, "" for other cards.
	BusID, Parent string
	Files         []DeviceFile
}

// Cards are the cards of a machine, by PCI address.
type Cards struct {
	List []Card
	// Common are the files that a container needs beside those of any card of a kind.
	Common map[CardKind][]DeviceFile
}

// ReadCards reads the cards that the drivers of a machine serve: NVIDIA's from procfs, as sysfs does not have their
// files, the others from sysfs, and those of other types from drop files. Its error names the first file that cannot be
// read; all other cards are returned.
func ReadCards(root Root) (out Cards, err error) {
	err = surveyCards(root, "", func(s *cardSurvey) { out = Cards{s.cards(), s.common} })
	dropped, _ := ReadDropped(root) // who publishes them reports what is wrong with the files
	out.Add(dropped)
	return out, err
}

type cardSurvey struct {
	*tree
	first  error            // of any card
	at     map[string]*Card // by PCI address
	common map[CardKind][]DeviceFile
	// adapters are the names of RDMA adapters by PCI address, as class infiniband has them.
	adapters map[string][]string
}

// surveyCards reads the cards of one kind, or of all for "", and lets use have them.
func surveyCards(root Root, only CardKind, use func(*cardSurvey)) error {
	s := &cardSurvey{at: map[string]*Card{}, common: map[CardKind][]DeviceFile{}, adapters: map[string][]string{}}
	return within(root, func(t *tree) {
		s.tree = t
		wanted := func(kind CardKind) bool { return only == "" || only == kind }
		if wanted(NVIDIA) {
			s.readNVIDIA()
		}
		gpus := map[string]CardKind{"0x10de": NVIDIA, "0x1002": AMD, "0x10ee": FPGA} // by PCI vendor
		maps.DeleteFunc(gpus, func(_ string, kind CardKind) bool { return !wanted(kind) })
		s.readClass("sys/class/drm", "card", gpus)
		s.readClass("sys/class/drm", "renderD", gpus)
		if wanted(RDMA) {
			s.readAdapters()
			s.readClass("sys/class/infiniband_verbs", "uverbs", map[string]CardKind{"": RDMA})
			s.readClass("sys/class/infiniband_mad", "umad", map[string]CardKind{"": RDMA})
			s.common[RDMA] = s.file(nil, "sys/class/misc/rdma_cm")
		}
		if wanted(FPGA) {
			s.readClass("sys/bus/platform/devices", "dfl-fme.", map[string]CardKind{"": FPGA})
			s.readClass("sys/bus/platform/devices", "dfl-port.", map[string]CardKind{"": FPGA})
		}
		if wanted(AMD) {
			s.common[AMD] = s.file(nil, "sys/class/kfd/kfd")
		}
		s.next()
		use(s)
		t.err = s.first
	})
}

func (s *cardSurvey) cards() (list []Card) {
	for _, bus := range slices.Sorted(maps.Keys(s.at)) {
		list = append(list, *s.at[bus])
	}
	return list
}

// next goes on after an error: one bad card does not hide the others.
func (s *cardSurvey) next() { s.first, s.err = cmp.Or(s.first, s.err), nil }

const (
	pciDevices     = "sys/bus/pci/devices"
	nvidiaGPUs     = "proc/driver/nvidia/gpus"
	infinibandCard = "sys/class/infiniband"
)

// readNVIDIA reads what the driver says: neither UUID nor minor follow from the order of the cards.
func (s *cardSurvey) readNVIDIA() {
	const dir = nvidiaGPUs
	cards := s.names(dir)
	if len(cards) == 0 {
		return
	}
	majors := s.majors()
	major := cmp.Or(majors["nvidia"], majors["nvidia-frontend"]) // the latter until release 545 of the driver
	if major == 0 {
		s.fail("proc/devices", errors.New("has no major number of nvidia, whose cards are in "+dir))
	}
	for _, bus := range cards {
		s.next()
		c := s.card(bus, NVIDIA)
		facts := pairs(s.text(path.Join(dir, bus, "information")), ":")
		if !strings.Contains(facts["GPU UUID"], "?") { // which it has until the card is initialized
			c.ID = facts["GPU UUID"]
		}
		if minor, err := strconv.ParseInt(facts["Device Minor"], 10, 32); err == nil && major > 0 {
			c.Files = append(c.Files, DeviceFile{"/dev/nvidia" + strconv.FormatInt(minor, 10), major, minor})
		}
	}
	if major > 0 {
		s.common[NVIDIA] = []DeviceFile{{"/dev/nvidiactl", major, 255}}
	}
	if uvm := majors["nvidia-uvm"]; uvm > 0 {
		s.common[NVIDIA] = append(s.common[NVIDIA], DeviceFile{"/dev/nvidia-uvm", uvm, 0},
			DeviceFile{"/dev/nvidia-uvm-tools", uvm, 1})
	}
}

// majors are the numbers of the drivers of character devices, by name.
func (t *tree) majors() map[string]int64 {
	characters, _, _ := strings.Cut(t.text("proc/devices"), "Block devices:")
	majors := map[string]int64{}
	for line := range strings.Lines(characters) {
		if number, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			majors[name], _ = strconv.ParseInt(number, 10, 32)
		}
	}
	return majors
}

// readAdapters reads the RDMA adapters, whose names follow no pattern.
func (s *cardSurvey) readAdapters() {
	for _, name := range s.names(infinibandCard) {
		link, _ := s.root.Readlink(path.Join(infinibandCard, name))
		if bus := lastPCI(link); bus != "" {
			s.card(bus, RDMA)
			s.adapters[bus] = append(s.adapters[bus], path.Join(infinibandCard, name))
		}
	}
}

// readClass adds files of a folder of sysfs to their cards, whose kind is that of their PCI vendor; "" is any.
func (s *cardSurvey) readClass(dir, prefix string, kinds map[string]CardKind) {
	s.next()
	for _, n := range s.numbered(dir, prefix) {
		entry := path.Join(dir, prefix+strconv.Itoa(n))
		link, _ := s.root.Readlink(entry)
		bus := lastPCI(link)
		kind, ok := kinds[""]
		if !ok {
			kind, ok = kinds[s.text(path.Join(pciDevices, bus, "vendor"))]
		}
		if ok && bus != "" {
			c := s.card(bus, kind)
			c.Files = s.file(c.Files, entry)
		}
		s.next()
	}
}

// card returns the card at a PCI address, which it adds when it is new.
func (s *cardSurvey) card(bus string, kind CardKind) *Card {
	c := s.at[bus]
	if c == nil {
		c = &Card{Kind: kind, BusID: bus}
		if kind != NVIDIA {
			c.ID = cmp.Or(s.text(path.Join(pciDevices, bus, "unique_id")), bus)
		}
		if physical, err := s.root.Readlink(path.Join(pciDevices, bus, "physfn")); err == nil {
			c.Parent = path.Base(physical)
		}
		s.at[bus] = c
	}
	return c
}

// file appends the device file of a folder of sysfs, if it has one.
func (s *cardSurvey) file(to []DeviceFile, folder string) []DeviceFile {
	facts := pairs(s.text(path.Join(folder, "uevent")), "=")
	major, err1 := strconv.ParseInt(facts["MAJOR"], 10, 32)
	minor, err2 := strconv.ParseInt(facts["MINOR"], 10, 32)
	if facts["DEVNAME"] == "" || err1 != nil || err2 != nil {
		return to
	}
	return append(to, DeviceFile{path.Join("/dev", path.Join("/", facts["DEVNAME"])), major, minor})
}

// lastPCI returns the last PCI address of a path in sysfs, such as 0000:3b:00.0; "" when it has none.
func lastPCI(link string) string {
	for _, part := range slices.Backward(strings.Split(link, "/")) {
		if isPCI(part) {
			return part
		}
	}
	return ""
}

func isPCI(part string) bool { return strings.Count(part, ":") == 2 && strings.Contains(part, ".") }

// pairs reads lines of a name and a value.
func pairs(text, separator string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), separator)
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return out
}

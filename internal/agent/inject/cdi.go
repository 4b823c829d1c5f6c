package inject

import (
	"encoding/json"
	"errors"
	"os"
	"slices"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
)

// cdiVendor begins the kinds of CDI devices that are devices of Tenon: tenon.sh/TYPE=ID.
const cdiVendor = "tenon.sh/"

// CDIGPU is the kind of CDI devices whose names are ids of GPUs.
const CDIGPU = cdiVendor + annotation.DeviceGPU

// Describe makes the agent's files of CDI devices describe cards, and returns the names that the machine's runtime can
// resolve. A file with the end .yaml is the administrator's and takes the place of the agent's. changing is called
// before a file changes: its names must not be given meanwhile. What cannot be written is not among the names.
func Describe(root host.Root, cards *host.Cards, changing func()) (names []string, err error) {
	for _, t := range []annotation.DeviceType{annotation.DeviceGPU, annotation.DeviceRDMA, annotation.DeviceFPGA} {
		kind := cdiVendor + t
		err1 := describe(root, kind, cards, changing)
		if err1 == nil {
			var own []string
			own, err1 = host.ReadCDI(root, kind)
			names = append(names, own...)
		}
		err = errors.Join(err, err1)
	}
	if _, missing := os.Stat(root.Path(host.CDIDir, host.CDIFile(CDIGPU)+".yaml")); missing == nil {
		return names, err // the administrator's describes the libraries of the driver, too
	}
	described, err1 := host.ReadToolkitCDI(root)
	return append(names, ToolkitNames(cards, described)...), errors.Join(err, err1)
}

// ToolkitNames returns the CDI devices of NVIDIA's container toolkit that are cards of the machine, by UUID. One that
// has a device file of another card, as a file from before the last start of the machine may say, is left out.
func ToolkitNames(cards *host.Cards, described map[string]host.DescribedCDI) (names []string) {
	for i := range cards.List {
		c := &cards.List[i]
		d, ok := described[c.ID]
		if !ok || c.Kind != host.NVIDIA || len(c.Files) == 0 {
			continue
		}
		own := func(f host.DeviceFile) bool { return slices.Contains(d.Paths, f.Path) }
		isOther := func(o host.Card) bool {
			return slices.ContainsFunc(o.Files, func(f host.DeviceFile) bool {
				return own(f) && !slices.Contains(c.Files, f)
			})
		}
		if own(c.Files[0]) && !slices.ContainsFunc(cards.List, isOther) {
			names = append(names, toolkitName(c.ID))
		}
	}
	return names
}

func toolkitName(id string) string { return host.ToolkitCDI + "=" + id }

func describe(root host.Root, kind string, cards *host.Cards, changing func()) error {
	text, err := CDISpec(kind, cards)
	if err != nil {
		return err
	}
	dir, file := statedir.Dir(root.Path(host.CDIDir)), host.CDIFile(kind)
	if _, err := os.Stat(dir.Path(file + ".yaml")); err == nil {
		text = ""
	}
	file += ".json"
	if old, err := dir.Read(file); err == nil && old == text {
		return nil
	}
	changing()
	if text == "" {
		return dir.Remove(file)
	}
	return dir.Write(file, text)
}

// Versions of the Container Device Interface: the first one that the runtimes read, and the first in which the name of
// a device may begin with a digit, as PCI addresses do.
const (
	cdiFirst  = "0.3.0"
	cdiDigits = "0.5.0"
)

// The parts of a CDI specification that describe device files.
type (
	cdiSpec struct {
		Version string      `json:"cdiVersion"`
		Kind    string      `json:"kind"`
		Devices []cdiDevice `json:"devices"`
	}
	cdiDevice struct {
		Name  string `json:"name"`
		Edits struct {
			Nodes []cdiNode `json:"deviceNodes"`
		} `json:"containerEdits"`
	}
	cdiNode struct {
		host.DeviceFile
		Type        string `json:"type"`
		Permissions string `json:"permissions"`
	}
)

// CDISpec returns the specification, as JSON, of the cards of a kind of CDI devices: the device files that Decide gives
// with them. A card that cannot be given, or whose id cannot be a name, is left out; "" without any card.
func CDISpec(kind string, cards *host.Cards) (string, error) {
	spec := cdiSpec{Version: cdiFirst, Kind: kind}
	for i := range cards.List {
		c := &cards.List[i]
		double := slices.ContainsFunc(cards.List, func(x host.Card) bool {
			return x.ID == c.ID && x.Kind.Type() == c.Kind.Type() && x.BusID != c.BusID
		})
		if cdiVendor+c.Kind.Type() != kind || len(c.Files) == 0 || double || !isCDIName(c.ID) {
			continue
		}
		if c.ID[0] <= '9' {
			spec.Version = cdiDigits
		}
		d := cdiDevice{Name: c.ID}
		for _, f := range slices.Concat(c.Files, cards.Common[c.Kind]) {
			d.Edits.Nodes = append(d.Edits.Nodes, cdiNode{f, "c", "rw"})
		}
		spec.Devices = append(spec.Devices, d)
	}
	if len(spec.Devices) == 0 {
		return "", nil
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	return string(text) + "\n", err
}

// isCDIName reports whether a text can be the name of a CDI device: one that cannot would make runtimes drop the file.
func isCDIName(text string) bool {
	for i, c := range []byte(text) {
		inner := i > 0 && i < len(text)-1 && (c == '_' || c == '-' || c == '.' || c == ':')
		if !inner && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return text != ""
}

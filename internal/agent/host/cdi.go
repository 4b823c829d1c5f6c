package host

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// CDIDir is where programs describe devices to the machine's runtime: the folder that is made anew at each boot.
const CDIDir = "run/cdi"

// CDIFile is the name, without its end, of the file in CDIDir that describes a kind of CDI devices.
func CDIFile(kind string) string { return strings.ReplaceAll(kind, "/", "-") }

// cdiSpec is what is read of a file of the Container Device Interface.
type cdiSpec struct {
	Kind    string   `json:"kind"`
	Edits   cdiEdits `json:"containerEdits"`
	Devices []struct {
		Name  string   `json:"name"`
		Edits cdiEdits `json:"containerEdits"`
	} `json:"devices"`
}

type cdiEdits struct {
	Nodes []struct {
		Path string `json:"path"`
	} `json:"deviceNodes"`
}

// ReadCDI returns the devices of a kind, such as tenon.sh/gpu, that the kind's own file of the Container Device
// Interface describes to the machine's runtime, as KIND=NAME in ascending order; none without such a file.
func ReadCDI(root Root, kind string) (names []string, err error) {
	err = within(root, func(t *tree) {
		for _, end := range []string{".yaml", ".json"} {
			file := CDIDir + "/" + CDIFile(kind) + end
			var spec cdiSpec
			t.fail(file, yaml.Unmarshal([]byte(t.text(file)), &spec))
			for _, d := range spec.Devices {
				if spec.Kind == kind {
					names = append(names, kind+"="+d.Name)
				}
			}
		}
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// ToolkitCDI is the kind of the CDI devices that NVIDIA's container toolkit describes.
const ToolkitCDI = "nvidia.com/gpu"

// DescribedCDI is a CDI device that a file describes.
type DescribedCDI struct {
	File string
	// Paths are those of the device files that a container gets, in the container.
	Paths []string
}

// ReadToolkitCDI returns the devices of ToolkitCDI by their names, such as GPU-98583a5c, that files of the folders
// describe which runtimes read by default. A name in two files is an error, as runtimes cannot resolve it, and so is a
// file that cannot be read; the other devices are returned.
func ReadToolkitCDI(root Root) (map[string]DescribedCDI, error) {
	found, twice := map[string]DescribedCDI{}, map[string]bool{}
	var faults []error
	for _, dir := range []string{"etc/cdi", CDIDir} {
		faults = append(faults, within(root, func(t *tree) {
			for _, file := range t.names(dir) {
				if end := path.Ext(file); end != ".yaml" && end != ".json" {
					continue
				}
				var spec cdiSpec
				file = path.Join(dir, file)
				if err := yaml.Unmarshal([]byte(t.text(file)), &spec); err != nil {
					faults = append(faults, fmt.Errorf("%s: %w", file, err))
				}
				for _, d := range spec.Devices {
					if spec.Kind != ToolkitCDI {
						continue
					}
					if first, known := found[d.Name]; known {
						twice[d.Name] = true
						faults = append(faults,
							fmt.Errorf("%s: %s=%s is in %s already", file, spec.Kind, d.Name, first.File))
						continue
					}
					described := DescribedCDI{File: file}
					for _, node := range slices.Concat(spec.Edits.Nodes, d.Edits.Nodes) {
						described.Paths = append(described.Paths, node.Path)
					}
					found[d.Name] = described
				}
			}
		}))
	}
	maps.DeleteFunc(found, func(name string, _ DescribedCDI) bool { return twice[name] })
	return found, errors.Join(faults...)
}

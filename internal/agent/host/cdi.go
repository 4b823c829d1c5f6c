package host

import (
	"errors"
	"fmt"
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
	Kind    string `json:"kind"`
	Devices []struct {
		Name string `json:"name"`
	} `json:"devices"`
}

// names returns the devices as KIND=NAME; none of a file of another kind.
func (s *cdiSpec) names(kind string) (names []string) {
	for _, d := range s.Devices {
		if s.Kind == kind {
			names = append(names, kind+"="+d.Name)
		}
	}
	return names
}

// ReadCDI returns the devices of a kind, such as tenon.sh/gpu, that the kind's own file of the Container Device
// Interface describes to the machine's runtime, as KIND=NAME in ascending order; none without such a file.
func ReadCDI(root Root, kind string) (names []string, err error) {
	err = within(root, func(t *tree) {
		for _, end := range []string{".yaml", ".json"} {
			file := CDIDir + "/" + CDIFile(kind) + end
			var spec cdiSpec
			t.fail(file, yaml.Unmarshal([]byte(t.text(file)), &spec))
			names = append(names, spec.names(kind)...)
		}
	})
	slices.Sort(names)
	return slices.Compact(names), err
}

// ToolkitCDI is the kind of the CDI devices that NVIDIA's container toolkit describes.
const ToolkitCDI = "nvidia.com/gpu"

// ReadToolkitCDI returns the devices of ToolkitCDI, as ReadCDI does, that any file of the folders which runtimes read
// by default describes, and the files that do. A file that cannot be read is an error and spoils none of the others.
func ReadToolkitCDI(root Root) (names, files []string, err error) {
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
				if found := spec.names(ToolkitCDI); len(found) > 0 {
					names, files = append(names, found...), append(files, "/"+file)
				}
			}
		}))
	}
	slices.Sort(names)
	return slices.Compact(names), files, errors.Join(faults...)
}

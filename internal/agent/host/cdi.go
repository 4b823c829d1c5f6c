package host

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// CDIDir is where programs describe devices to the machine's runtime: the folder that is made anew at each boot.
const CDIDir = "run/cdi"

// CDIFile is the name, without its end, of the file in CDIDir that describes a kind of CDI devices.
func CDIFile(kind string) string { return strings.ReplaceAll(kind, "/", "-") }

// ReadCDI returns the devices of a kind, such as tenon.sh/gpu, that the kind's own file of the Container Device
// Interface describes to the machine's runtime, as KIND=NAME in ascending order; none without such a file.
func ReadCDI(root Root, kind string) (names []string, err error) {
	err = within(root, func(t *tree) {
		for _, end := range []string{".yaml", ".json"} {
			file := CDIDir + "/" + CDIFile(kind) + end
			var spec struct {
				Kind    string `json:"kind"`
				Devices []struct {
					Name string `json:"name"`
				} `json:"devices"`
			}
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

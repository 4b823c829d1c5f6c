package host

import (
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ReadCDI returns the devices of a kind, such as tenon.sh/gpu, that the kind's own file of the Container Device
// Interface describes to the machine's runtime, as KIND=NAME in ascending order; none without such a file.
func ReadCDI(root Root, kind string) (names []string, err error) {
	err = within(root, func(t *tree) {
		base := strings.ReplaceAll(kind, "/", "-")
		for _, file := range []string{"run/cdi/" + base + ".yaml", "run/cdi/" + base + ".json"} {
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

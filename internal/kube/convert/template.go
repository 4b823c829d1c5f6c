package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Templates reads what templates give of a device: by vendor and model, then by name, an amount of each resource. The
// error names the first that cannot be used.
func Templates(text string) (list []device.Template, err error) {
	var all map[string]map[string]map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("want models with templates with amounts: %w", err)
	}
	allowed := []string{device.NPUCore, device.NPUCPU, device.NPUDVPP, device.GPUMemory, device.GPURatio}
	for _, model := range slices.Sorted(maps.Keys(all)) {
		for _, name := range slices.Sorted(maps.Keys(all[model])) {
			amounts := map[string]int64{}
			for resource, value := range all[model][name] {
				q, err := annotation.ParseQuantity(fmt.Sprint(value))
				if err != nil || q.Sign() < 0 || !slices.Contains(allowed, resource) {
					return nil, fmt.Errorf("%s, %s: %s: %v, want a quantity of at least 0 of one of %s", model, name,
						resource, value, strings.Join(allowed, ", "))
				}
				amounts[resource] = q.Value()
			}
			t := device.Template{Name: name, Model: model}
			t.Amount, t.Ratio = device.Measure(device.GPU, amounts)
			list = append(list, t)
		}
	}
	return list, nil
}

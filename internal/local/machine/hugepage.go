package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// hugepagePrefix begins a setting of the machine: hugepages-2Mi=AMOUNT, the amount of every NUMA node.
const hugepagePrefix = "hugepages-"

func isHugepageKey(text string) bool {
	return strings.HasPrefix(text, hugepagePrefix) && !strings.Contains(text, "=")
}

func (d *Description) takeHugepages(words []string) (rest []string, err error) {
	sizes := map[string]int64{"2Mi": 2 << 20, "1Gi": gib}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if !isHugepageKey(key) {
			rest = append(rest, word)
			continue
		}
		if d.topology != nil {
			return nil, fmt.Errorf("%s: the machine has the huge pages of its capture", word)
		}
		size, ok := sizes[strings.TrimPrefix(key, hugepagePrefix)]
		if !ok {
			return nil, fmt.Errorf("%s: Unsupported page size: supported %s", word,
				strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))
		}
		amount, err := annotation.ParseQuantity(value)
		if err != nil || amount.Sign() < 0 || amount.Value()%size != 0 {
			return nil, fmt.Errorf("%s: the amount must be a multiple of the page size, such as %s=4Gi", word, key)
		}
		d.shape.Hugepages = maps.Clone(d.shape.Hugepages)
		if d.shape.Hugepages == nil {
			d.shape.Hugepages = map[int64]int64{}
		}
		d.shape.Hugepages[size] = amount.Value() / size
	}
	return rest, d.checkHugepages()
}

func (d *Description) checkHugepages() error {
	m, err := d.Topology()
	if err != nil {
		return err
	}
	for i := range m.NumNUMA() {
		n := topo.NUMA(i)
		if huge := hugeBytes(m, n); huge > m.MemoryBytes(n) {
			return fmt.Errorf("NUMA node %d has %d bytes of memory, its huge pages take %d", m.NUMAID(n),
				m.MemoryBytes(n), huge)
		}
	}
	return nil
}

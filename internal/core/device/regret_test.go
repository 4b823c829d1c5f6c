package device_test

import (
	"fmt"
	"testing"

	"github.com/tenon-project/tenon/internal/core/device"
)

// Of bridged pairs, GPUs of two pairs miss what one pair has between its own.
func TestLinksThatAPodMisses(t *testing.T) {
	t.Parallel()
	spec := hgx()
	spec.Switches = nil
	for i := range 4 {
		spec.Links = append(spec.Links, device.Link{
			Type: device.GPU, A: fmt.Sprintf("GPU-%d", 2*i), B: fmt.Sprintf("GPU-%d", 2*i+1), Lanes: 4,
		})
	}
	v := empty(t, spec)
	for name, c := range map[string]struct {
		gpus   []string
		k      int
		regret int64
	}{
		"one GPU":              {gpus: []string{"GPU-3"}},
		"a pair":               {gpus: []string{"GPU-2", "GPU-3"}, k: 2},
		"of two pairs":         {gpus: []string{"GPU-1", "GPU-2"}, k: 2, regret: 400},
		"of two NUMA nodes":    {gpus: []string{"GPU-1", "GPU-4"}, k: 2, regret: 410},
		"two pairs":            {gpus: []string{"GPU-4", "GPU-5", "GPU-6", "GPU-7"}, k: 4},
		"one that is gone":     {gpus: []string{"GPU-1", "GPU-9"}},
		"a NIC does not count": {gpus: []string{"GPU-1", "0000:19:00.0"}},
	} {
		var grants []device.Grant
		for _, id := range c.gpus {
			g := device.Grant{Type: device.GPU, ID: id}
			if id[0] == '0' {
				g.Type = device.RDMA
			}
			grants = append(grants, g)
		}
		model, k, regret := v.LinkRegret(grants)
		if k != c.k || regret != c.regret || (k > 0) != (model == "H100") {
			t.Errorf("%s: %s, %d GPUs, regret %d; want %d, %d", name, model, k, regret, c.k, c.regret)
		}
	}
	if _, k, _ := empty(t, device.Spec{}).LinkRegret([]device.Grant{{Type: device.GPU, ID: "GPU-0"}}); k != 0 {
		t.Errorf("a node without GPUs: %d", k)
	}
}

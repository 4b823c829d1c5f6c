package probe_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
)

// A node with the driver and GPU Feature Discovery, but without a library that says how much memory a card has.
func TestMemoryOfCardsIsThatOfGPUFeatureDiscovery(t *testing.T) {
	t.Parallel()
	bare := func(id, minor string, change ...func(*host.Dropped)) host.Dropped {
		return gpu(id, minor, append(change, func(d *host.Dropped) { d.Resources = nil })...)
	}
	two := []host.Dropped{bare("a", "0"), bare("b", "1")}
	t4 := bare("b", "1", func(d *host.Dropped) { d.Model = "T4" })
	amd := bare("b", "1", func(d *host.Dropped) { d.Vendor = "amd" })
	lost := bare("b", "1", func(d *host.Dropped) { d.IsLost = true })
	labels := func(pairs ...string) map[string]string {
		l := map[string]string{
			"nvidia.com/gpu.memory": "81559", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "H100",
		}
		for i := 0; i < len(pairs); i += 2 {
			l["nvidia.com/"+pairs[i]] = pairs[i+1]
		}
		return l
	}
	look := func(l map[string]string, found []host.Dropped, before ...host.Dropped) (map[string]string, error) {
		in := probe.Input{NodeName: "n", Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: l}}}
		published, _ := probe.Device(in, before, nil, metav1.Now())
		o, err := probe.Device(in, found, published, metav1.Now())
		memory := map[string]string{}
		for _, d := range o.Spec.Devices {
			if q, known := d.Resources["koordinator.sh/gpu-memory"]; known {
				memory[d.ID] = q.String()
			}
		}
		return memory, err
	}
	for name, test := range map[string]struct {
		labels map[string]string
		found  []host.Dropped
		want   string // memory of a and b, "" for none
		bad    string
	}{
		"cards of one model, all counted": {labels(), two, "81559Mi 81559Mi", ""},
		"no labels":                       {map[string]string{"x": "y"}, two, " ", ""},
		"a driver that says it":           {labels(), []host.Dropped{gpu("a", "0"), two[1]}, "80Gi 81559Mi", ""},
		"another number of cards":         {labels("gpu.count", "8"), two, " ", `gpu.count]: "8", want 2 cards`},
		"no number of cards":              {labels("gpu.count", ""), two, " ", `gpu.count]: "", want 2 cards`},
		"two models":                      {labels(), []host.Dropped{two[0], t4}, " ", "of one model"},
		"a card of another vendor":        {labels("gpu.count", "1"), []host.Dropped{two[0], amd}, "81559Mi ", ""},
		"slices in place of cards":        {labels("mig.strategy", "single"), two, " ", ""},
		"a product that is a slice":       {labels("gpu.product", "A100-SXM4-40GB-MIG-1g.5gb"), two, " ", ""},
		"cards beside slices":             {labels("mig.strategy", "mixed"), two, "81559Mi 81559Mi", ""},
		"a negative amount":               {labels("gpu.memory", "-1"), two, " ", `"-1", want`},
		"an amount with a unit":           {labels("gpu.memory", "80Gi"), two, " ", `gpu.memory]: "80Gi"`},
		"an amount above any memory":      {labels("gpu.memory", "9223372036854775807"), two, " ", "of MiB"},
		"a card that is lost counts":      {labels(), []host.Dropped{two[0], lost}, "81559Mi ", ""},
	} {
		memory, err := look(test.labels, test.found)
		if got := memory["a"] + " " + memory["b"]; got != test.want {
			t.Errorf("%s: memory %q, want %q", name, got, test.want)
		}
		if (err == nil) != (test.bad == "") || err != nil && !strings.Contains(err.Error(), test.bad) {
			t.Errorf("%s: %v, want %q", name, err, test.bad)
		}
	}
	memory, err := look(labels(), two[:1], two...)
	if memory["a"] != "81559Mi" || err != nil {
		t.Errorf("a card whose neighbour is gone has memory %q, %v", memory["a"], err)
	}
	if memory, err = look(labels(), two[:1], two[1]); memory["a"] != "" || err == nil {
		t.Errorf("a card that was not there has memory %q, %v", memory["a"], err)
	}
}

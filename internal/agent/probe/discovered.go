package probe

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// Labels that NVIDIA's GPU Feature Discovery writes on a Node. The memory, in MiB, is that of one card; with MIG's
// strategy "single" these labels describe slices.
const (
	discoveredMemory  = "nvidia.com/gpu.memory"
	discoveredCount   = "nvidia.com/gpu.count"
	discoveredProduct = "nvidia.com/gpu.product"
	migStrategy       = "nvidia.com/mig.strategy"
)

const nvidia = "nvidia"

// fillMemory gives GPUs whose memory no driver has said the memory that GPU Feature Discovery has found. Its labels
// count only where they are about these cards: all NVIDIA cards are of one model and as many as it has counted. A card
// that has its memory from an earlier look keeps it while the labels say the same.
func (r *dropReader) fillMemory(devices []devicev1alpha1.DeviceInfo, node *corev1.Node,
	published *devicev1alpha1.Device,
) {
	const memory = koordinator + "gpu-memory"
	if node == nil || node.Labels[discoveredMemory] == "" || node.Labels[migStrategy] == "single" ||
		strings.Contains(node.Labels[discoveredProduct], "-MIG-") {
		return
	}
	mebi, err := strconv.ParseInt(node.Labels[discoveredMemory], 10, 64)
	if err != nil || mebi <= 0 || mebi > 1<<30 {
		r.labelFault(discoveredMemory, node, "a number of MiB")
		return
	}
	amount := *resource.NewQuantity(mebi<<20, resource.BinarySI)
	before := map[string]bool{}
	if published != nil {
		for _, d := range published.Spec.Devices {
			had := d.Resources[memory]
			before[d.ID] = d.Type == annotation.DeviceGPU && had.Cmp(amount) == 0
		}
	}
	cards, models := 0, map[string]bool{}
	for i := range r.devices {
		if d := &r.devices[i]; d.Type == annotation.DeviceGPU && isNVIDIA(d.Vendor) {
			cards++
			models[d.Model] = true
		}
	}
	alike := len(models) == 1 && node.Labels[discoveredCount] == strconv.Itoa(cards)
	doubt := false
	for i := range devices {
		d := &devices[i]
		if _, known := d.Resources[memory]; known || d.Type != annotation.DeviceGPU ||
			!isNVIDIA(d.Labels[annotation.GPUVendorLabel]) {
			continue
		}
		if !alike && !before[d.ID] {
			doubt = true
			continue
		}
		d.Resources[memory] = amount
	}
	if doubt {
		want := strconv.Itoa(cards) + " cards of one model, as found: the memory of cards is not known"
		r.labelFault(discoveredCount, node, want)
	}
}

// labelFault records that a label of the Node cannot be used.
func (r *dropReader) labelFault(key string, node *corev1.Node, want string) {
	d := host.Dropped{Type: "Node", UUID: node.Name}
	r.fault(&d, "labels["+key+"]", node.Labels[key], want)
}

func isNVIDIA(vendor string) bool { return strings.EqualFold(vendor, nvidia) }

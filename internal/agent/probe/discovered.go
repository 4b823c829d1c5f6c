package probe

import (
	"cmp"
	"slices"
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

// partitions are the sets in which GPUs with mustHonorPartition are given out; nil without such GPUs. A group of them
// that are all linked with each other is a set, and so are its blocks of 1, 2, 4 and so on, in the order of their
// numbers. Numbers are those by which readers take the table: modules where any GPU has one, else minors.
func (r *dropReader) partitions(links []annotation.DeviceLink) annotation.GPUPartitions {
	field, number := "minor", func(d *host.Dropped) string { return d.Minor }
	if slices.ContainsFunc(r.devices, func(d host.Dropped) bool { return d.ModuleID != "" }) {
		field, number = "moduleID", func(d *host.Dropped) string { return d.ModuleID }
	}
	var ids []string
	var table annotation.GPUPartitions
	numbers, linked := map[string]int32{}, map[[2]string]bool{}
	for i := range r.devices {
		if d := &r.devices[i]; d.Type == annotation.DeviceGPU && d.Topology.MustHonorPartition {
			table = annotation.GPUPartitions{}
			if numbers[d.UUID] = r.number(d, field, number(d)); numbers[d.UUID] >= 0 {
				ids = append(ids, d.UUID)
			} else {
				r.fault(d, field, "", "a number, as topology.mustHonorPartition is set")
			}
		}
	}
	for _, l := range links {
		linked[[2]string{l.IDs[0], l.IDs[1]}], linked[[2]string{l.IDs[1], l.IDs[0]}] = true, true
	}
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(numbers[a], numbers[b]) })
	for len(ids) > 0 {
		var group []string
		var minors []int32
		ids = slices.DeleteFunc(ids, func(id string) bool {
			if slices.ContainsFunc(group, func(member string) bool { return !linked[[2]string{id, member}] }) {
				return false
			}
			group, minors = append(group, id), append(minors, numbers[id])
			return true
		})
		n := len(minors)
		for size := 1; size <= n; size *= 2 {
			for set := range slices.Chunk(minors[:n-n%size], size) {
				table[size] = append(table[size], annotation.GPUPartition{Minors: set, AllocationScore: 1})
			}
		}
		if n&(n-1) != 0 {
			table[n] = append(table[n], annotation.GPUPartition{Minors: minors, AllocationScore: 1})
		}
	}
	return table
}

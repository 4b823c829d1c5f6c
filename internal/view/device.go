package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
)

// Device is what a pod holds of one device of its node.
type Device struct {
	// Minor is the number of the device file; -1 where it is not known.
	Minor int32 `json:"minor"`
	// ID is the UUID or the PCI address; absent where an old annotation has the minor alone.
	ID string `json:"id,omitempty"`
	// Resources are canonical Kubernetes strings by resource.
	Resources map[string]string `json:"resources"`
	// Degraded devices work and are likely to fail.
	Degraded bool `json:"degraded,omitempty"`
}

// DevicesOf returns what a pod holds of a node whose account is v, by type, then minor.
func DevicesOf(v *ledger.View, grants []device.Grant) map[string][]Device {
	out := map[string][]Device{}
	for i := range grants {
		g := &grants[i]
		d := Device{Minor: g.Minor, ID: g.ID, Resources: amountTexts(g.Amount.Amounts(g.Type, g.Ratio))}
		d.Degraded = v.Devices() != nil && v.Devices().Degraded(grants[i:i+1]) > 0
		out[string(g.Type)] = append(out[string(g.Type)], d)
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b Device) int {
			return cmp.Or(cmp.Compare(a.Minor, b.Minor), cmp.Compare(a.ID, b.ID))
		})
	}
	return out
}

// DevicesText lists minors by type: "gpu 0,1; rdma 0". A device without a minor has its id instead.
func DevicesText(devices map[string][]Device) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(devices)) {
		var minors []int
		var names []string
		for _, d := range devices[kind] {
			if d.Minor >= 0 {
				minors = append(minors, int(d.Minor))
			} else {
				names = append(names, d.ID)
			}
		}
		if len(minors) > 0 {
			names = append(names, IDs(minors))
		}
		parts = append(parts, kind+" "+strings.Join(names, ","))
	}
	return strings.Join(parts, "; ")
}

func amountTexts(amounts map[string]int64) map[string]string {
	out := map[string]string{}
	for name, n := range amounts {
		if out[name] = CountText(n); name == device.GPUMemory {
			out[name] = BytesText(n)
		}
	}
	return out
}

// NodeDevices are the devices of a node.
type NodeDevices struct {
	// Mode is whose choice of devices holds, by the Device object: Own (Tenon's), Follow (the kubelet's), Moving.
	Mode string         `json:"mode"`
	List []DeviceOnNode `json:"list"`
	// Links are the direct links, of the kind that the Device object names first, such as NVLink.
	Links []DeviceLink `json:"links"`
	Kind  string       `json:"linkKind,omitempty"`
	// UnknownHolders counts pods that may have any of the devices, and unknown devices that pods have: until it is
	// known what they have, no pod gets a device.
	UnknownHolders int `json:"unknownHolders,omitempty"`
}

// DeviceOnNode is one device of a node. Amounts are canonical Kubernetes strings by resource.
type DeviceOnNode struct {
	Type    string `json:"type"`
	Minor   int32  `json:"minor"`
	ID      string `json:"id"`
	Model   string `json:"model,omitempty"`
	Healthy bool   `json:"healthy"`
	// Degraded devices work and are likely to fail: pods get them last.
	Degraded bool `json:"degraded,omitempty"`
	// Sliced GPUs are given out as their MIG devices alone.
	Sliced bool `json:"sliced,omitempty"`
	// NUMA is the kernel's id of the NUMA node, -1 where it is not known. PCIe is the root complex.
	NUMA  int               `json:"numaNode"`
	PCIe  string            `json:"pcie,omitempty"`
	Bus   string            `json:"busID,omitempty"`
	Total map[string]string `json:"total"`
	Free  map[string]string `json:"free"`
	// UsedPercent is the larger of what pods have of cores and of memory.
	UsedPercent int64          `json:"usedPercent"`
	Holders     []DeviceHolder `json:"holders"`
}

// DeviceHolder is a pod, as namespace/name, with what it has of a device.
type DeviceHolder struct {
	Pod       string            `json:"pod"` // a UID where the pod is not known; a claim's name where Claim is set
	Resources map[string]string `json:"resources"`
	// Foreign pods have the whole device of another program than Tenon's scheduler, such as the kubelet.
	Foreign bool `json:"foreign,omitempty"`
	// Claim is set where a ResourceClaim has the device, in the place of a pod.
	Claim bool `json:"claim,omitempty"`
}

// DeviceLink joins two devices of one type directly.
type DeviceLink struct {
	Type  string    `json:"type"`
	IDs   [2]string `json:"ids"`
	Lanes int64     `json:"lanes"`
}

// NodeDevicesOf returns the devices of a node by its account, without Kind; nil where it has none.
func NodeDevicesOf(v *ledger.View) *NodeDevices {
	account := v.Devices()
	if account == nil {
		return nil
	}
	out := &NodeDevices{Mode: "Own", List: []DeviceOnNode{}, Links: []DeviceLink{}, UnknownHolders: v.UnknownHolders()}
	ids := map[device.Type][]string{}
	var types []device.Type
	for d := range account.Devices() {
		if len(ids[d.Type]) == 0 {
			types = append(types, d.Type)
		}
		ids[d.Type] = append(ids[d.Type], d.ID)
		out.List = append(out.List, deviceOnNode(v, &d))
	}
	for _, t := range types {
		lanes, n := account.Lanes(t), len(ids[t])
		for i := range n {
			for j := i + 1; j < n; j++ {
				if lanes[i*n+j] > 0 {
					out.Links = append(out.Links, DeviceLink{string(t), [2]string{ids[t][i], ids[t][j]}, lanes[i*n+j]})
				}
			}
		}
	}
	return out
}

// vanishedDevices returns a problem for each pod that holds devices which the node's Device object no longer has.
func vanishedDevices(v *ledger.View) (problems []Problem) {
	var known []device.Status
	if account := v.Devices(); account != nil {
		known = slices.Collect(account.Devices())
	}
	for e := range v.Entries() {
		var gone []string
		grants := v.GrantsOf(&e)
		for i := range grants {
			g := &grants[i]
			if !slices.ContainsFunc(known, func(d device.Status) bool { return g.IsOf(&d) }) {
				gone = append(gone, fmt.Sprintf("%s %s", g.Type, cmp.Or(g.ID, strconv.Itoa(int(g.Minor)))))
			}
		}
		if len(gone) > 0 {
			slices.Sort(gone)
			text := "holds " + strings.Join(gone, ", ") + ", not in the node's Device object"
			problems = append(problems, Problem{Pod: e.Namespace + "/" + e.Name, Text: text})
		}
	}
	return problems
}

func deviceOnNode(v *ledger.View, d *device.Status) DeviceOnNode {
	total, _, free := d.Amounts()
	out := DeviceOnNode{
		Type: string(d.Type), Minor: d.Minor, ID: d.ID, Model: d.Model, Healthy: d.Healthy, Degraded: d.Degraded,
		Sliced: !d.Offered, NUMA: max(d.NUMAID, -1), PCIe: d.PCIe, Bus: d.Bus, UsedPercent: d.UsedPercent(),
		Total: amountTexts(total), Free: amountTexts(free), Holders: []DeviceHolder{},
	}
	for e := range v.Entries() {
		grants := v.GrantsOf(&e)
		for i := range grants {
			g := &grants[i]
			if g.IsOf(d) {
				has := amountTexts(g.Amount.Amounts(g.Type, g.Ratio))
				held := DeviceHolder{Pod: e.Namespace + "/" + e.Name, Resources: has, Claim: e.IsClaim()}
				out.Holders = append(out.Holders, held)
			}
		}
	}
	for _, uid := range d.Foreign {
		held := DeviceHolder{Pod: uid, Resources: out.Total, Foreign: true}
		if e, known := v.Entry(uid); known {
			held.Pod = e.Namespace + "/" + e.Name
		}
		out.Holders = append(out.Holders, held)
	}
	slices.SortFunc(out.Holders, func(a, b DeviceHolder) int { return cmp.Compare(a.Pod, b.Pod) })
	return out
}

// Isolation is what keeps a pod, and its neighbours, to their parts of a GPU.
type Isolation struct {
	Strength device.Strength `json:"strength"`
	// By is the library of cooperative isolation, by the label koordinator.sh/gpu-isolation-provider.
	By string `json:"by,omitempty"`
}

// isolationOf returns the isolation of a pod's grants; nil where all GPUs are whole.
func isolationOf(v *ledger.View, grants []device.Grant, provider string) *Isolation {
	switch strength := device.StrengthOf(v.Devices(), grants, provider); strength {
	case "":
		return nil
	case device.Cooperative:
		return &Isolation{Strength: strength, By: provider}
	default:
		return &Isolation{Strength: strength}
	}
}

package occupancy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tenon-project/tenon/internal/core/align"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/core/why"
)

// Load is what pods have of the GPUs of one node, and what more would fit.
type Load struct {
	// Model is that of all GPUs, "mixed" where they differ.
	Model string `json:"model"`
	// Isolation is the strength of what keeps pods to their parts of the node's GPUs: none, cooperative (for pods that
	// ask for the node's library) or hard.
	Isolation device.Strength `json:"isolation"`
	// GPUs are those that pods can be given, MIG devices among them; UsedPercent is what pods have of them, 100 for one
	// GPU.
	GPUs        int   `json:"gpus"`
	UsedPercent int64 `json:"usedPercent"`
	// Degraded GPUs, of GPUs, are likely to fail.
	Degraded int `json:"degraded,omitempty"`
	// Free GPUs have no pod on them. Pods hold InParts GPUs in parts: several pods each, or one pod that left a part.
	// Shared ones have a part left that another pod can get: FreeShares percent together.
	Free       int   `json:"free"`
	InParts    int   `json:"inParts"`
	Shared     int   `json:"shared"`
	FreeShares int64 `json:"freeSharesPercent"`
	// Fit is the number of pods that the node would still take, by their number of whole GPUs: 1, 2, 4 and 8, and for
	// each GPU a CPU of the shared pool and 1 GiB of memory. They tolerate the node's taints. One entry does not count
	// on the others.
	Fit map[string]int `json:"fit"`
	// Stranded are GPUs that have something free which no such pod, and no share, can use. A MIG device is none of them
	// while its name can be requested.
	Stranded []Stranded `json:"stranded"`
	// Namespaces say whose pods UsedPercent belongs to, by name.
	Namespaces []NamespaceUse `json:"namespaces,omitempty"`
}

// NamespaceUse is what the pods of a namespace have of GPUs, 100 for one GPU. Namespace is empty for pods that are not
// known.
type NamespaceUse struct {
	Namespace   string `json:"namespace"`
	UsedPercent int64  `json:"usedPercent"`
}

// Stranded is a number of GPUs with what keeps pods off: unhealthy, kubelet, the health.Cause of a closed
// node (notReady, cordon, pressure, agent), cpu, memory, partition, numa (the node's topology policy refuses one more
// pod), pods (the node takes no more), share.
type Stranded struct {
	Cause string `json:"cause"`
	GPUs  int    `json:"gpus"`
}

// Room is what a node has beside its GPUs, or what pods request of it.
type Room struct {
	MilliCPU, MemoryBytes, Pods int64
	// Closed is why new pods cannot use the node; "" where they can.
	Closed health.Cause
}

// Of returns the load of the GPUs of a node; false where it has none.
func Of(v *ledger.View, room Room) (Load, bool) {
	out := Load{Fit: map[string]int{}, Stranded: []Stranded{}}
	account := v.Devices()
	if account == nil {
		return out, false
	}
	out.Isolation = isolationOf(v)
	unhealthy, useless, mig, used := 0, 0, 0, map[string]int64{}
	for d := range account.Devices() {
		if d.Type != device.GPU || !d.Offered {
			continue
		}
		out.GPUs++
		out.UsedPercent += d.UsedPercent()
		addNamespaces(used, v, &d)
		if d.Healthy && d.Degraded {
			out.Degraded++
		}
		if out.Model = cmp.Or(out.Model, d.Model); out.Model != d.Model {
			out.Model = "mixed"
		}
		if d.Holders > 1 || d.Holders == 1 && d.UsedPercent() < 100 {
			out.InParts++
		}
		switch part := 100 - d.UsedPercent(); {
		case !d.Healthy:
			unhealthy++
		case d.Holders == 0:
			out.Free++
			if d.Profile != "" {
				mig++ // a pod of whole GPUs does not want it
			}
		case part > 0 && d.Free[device.Slots] > 0:
			out.Shared++
			out.FreeShares += part
		case d.Free[device.Cores] > 0 || d.Free[device.Bytes] > 0:
			useless++ // a share needs memory, and few need nothing else
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		out.Namespaces = append(out.Namespaces, NamespaceUse{name, used[name]})
	}
	out.strand("unhealthy", unhealthy)
	if !v.Facts().OwnDevices || v.UnknownHolders() > 0 {
		out.strand("kubelet", out.Free)
		return out, out.GPUs > 0
	}
	if room.Closed != "" {
		out.strand(string(room.Closed), out.Free+out.Shared)
		return out, out.GPUs > 0
	}
	cpus, memory := int(max(room.MilliCPU, 0)/1000), int(max(room.MemoryBytes, 0)>>30)
	cards := out.Free - mig
	usable := min(cards, cpus, memory)
	out.strand("cpu", cards-min(cards, cpus))
	out.strand("memory", min(cards, cpus)-usable)
	pods := int(max(room.Pods, 0))
	for _, size := range [...]int{1, 2, 4, 8} {
		out.Fit[strconv.Itoa(size)], _ = wholeFits(v, size, min(usable/size, pods))
	}
	placeable, excess := 0, 0 // by pods of any sizes together, and those of pods that are too many for the node
	for _, size := range [...]int{8, 4, 2, 1} {
		var fit int
		fit, v = wholeFits(v, size, (usable-placeable)/size)
		placeable += fit * size
		excess += max(fit-pods, 0) * size
		pods = max(pods-fit, 0)
	}
	cause := "partition"
	if one := wholeGPUs(1); v.Devices().Fits(&one, &device.Options{}).OK() {
		cause = "numa"
	}
	out.strand(cause, usable-placeable)
	out.strand("pods", excess)
	out.strand("share", useless)
	return out, out.GPUs > 0
}

// addNamespaces adds what the pods of each namespace have of a device.
func addNamespaces(used map[string]int64, v *ledger.View, d *device.Status) {
	for e := range v.Entries() {
		grants := v.GrantsOf(&e)
		for i := range grants {
			if g := &grants[i]; g.IsOf(d) {
				held := device.Status{Device: d.Device, Used: g.Amount}
				used[e.Namespace] += max(held.UsedPercent(), g.Ratio)
			}
		}
	}
	for _, uid := range d.Foreign { // together they have the whole device
		e, _ := v.Entry(uid)
		used[e.Namespace] += 100 / int64(len(d.Foreign))
	}
}

func (l *Load) strand(cause string, gpus int) {
	if gpus > 0 {
		l.Stranded = append(l.Stranded, Stranded{cause, gpus})
	}
}

// wholeFits counts the pods of size whole GPUs of any vendor, at most limit, that the scheduler's own check of a node
// places one after the other; after is the account with them.
func wholeFits(v *ledger.View, size, limit int) (n int, after *ledger.View) {
	devices := wholeGPUs(int64(size))
	r := &place.Request{
		Class: qos.LS, Role: qos.SharedPool, RequestMilli: int64(size) * 1000,
		Needs:   []align.Need{{Resource: why.Memory, N: int64(size) << 30}},
		Devices: &devices,
	}
	for ; n < limit; n++ {
		r.UID = fmt.Sprintf("+%d of %d", n, size)
		offer, reason := place.Try(v, r)
		if !reason.OK() {
			break
		}
		v = v.With(offer.Entry)
	}
	return n, v
}

// wholeGPUs asks for n GPUs that no other pod has a part of.
func wholeGPUs(n int64) device.Request {
	return device.Request{Parts: []device.Part{{Type: device.GPU, Count: n, Need: device.Need{Whole: true}}}}
}

// isolationOf returns the strength of isolation that a share of a GPU can have on a node: that of a library needs the
// pod's label as well.
func isolationOf(v *ledger.View) device.Strength {
	hasShares := false
	for d := range v.Devices().Devices() {
		hasShares = hasShares || d.Type == device.GPU && d.Offered && d.Profile == ""
	}
	return device.StrengthOfNode(hasShares, v.Facts().GPUIsolation)
}

package view

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/place"
	"github.com/tenon-project/tenon/internal/core/why"
)

// setsShown is the number of sets of devices that an answer compares.
const setsShown = 4

// DeviceChoice compares the sets of devices that a node has for a pod, as they would be compared now without the pod.
type DeviceChoice struct {
	// Sets are the best ones, in the order of their keys; More is true where there are others.
	Sets []DeviceSet `json:"sets"`
	More bool        `json:"more,omitempty"`
	// Decided is the first key in which the first two sets differ; "" for a single one.
	Decided string `json:"decided,omitempty"`
	// Approximate: there were too many sets to look at all of them.
	Approximate bool `json:"approximate,omitempty"`
}

// DeviceSet is one set; Held is true for what the pod has.
type DeviceSet struct {
	Devices map[string][]Device `json:"devices"`
	Keys    []DeviceKey         `json:"keys"`
	Held    bool                `json:"held,omitempty"`
}

// DeviceKey is one number by which sets are compared, in the order of their weight.
type DeviceKey struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
	// Less is true where less is better.
	Less bool `json:"lessIsBetter,omitempty"`
}

// DeviceFit is what a node has for the devices of a pod that it refuses.
type DeviceFit struct {
	// Set is the best set of devices, where the node has one and refuses the pod for something else.
	Set *DeviceSet `json:"set,omitempty"`
	// Type is the type that is short, Asked the number of devices, Need what is asked of each.
	Type  string `json:"type,omitempty"`
	Asked int64  `json:"asked,omitempty"`
	Need  string `json:"need,omitempty"`
	// Fit devices could serve the pod, Whole ones have no pod on them, Best is what the best one has free.
	Fit   int64             `json:"fit"`
	Whole int64             `json:"whole"`
	Best  map[string]string `json:"best,omitempty"`
	// Miss is what the node lacks: devices, or a part of the best one.
	Miss string `json:"miss,omitempty"`
	// Holders are the pods of the pod's namespace, and the Reservations, that hold devices of the type, those with most
	// devices first.
	// Elsewhere counts the holders in other namespaces, which the reader may have no right to see.
	Holders   []HoldingPod `json:"holders,omitempty"`
	Elsewhere int          `json:"holdersElsewhere,omitempty"`
}

// HoldingPod is a pod that holds devices, or parts of them.
type HoldingPod struct {
	Pod     string `json:"pod"` // namespace/name, or reservation/name
	Devices int    `json:"devices"`
	// Claim is set where a ResourceClaim of the name has them.
	Claim bool `json:"claim,omitempty"`
}

// addHolders adds who holds devices of the type on the node.
func (f *DeviceFit) addHolders(v *ledger.View, namespace string) {
	for e := range v.Entries() {
		n := 0
		for _, g := range v.GrantsOf(&e) {
			if string(g.Type) == f.Type {
				n++
			}
		}
		switch {
		case n == 0:
		case e.Namespace != namespace && e.Namespace != ledger.OfReservation:
			f.Elsewhere++
		default:
			f.Holders = append(f.Holders, HoldingPod{e.Namespace + "/" + e.Name, n, e.IsClaim()})
		}
	}
	slices.SortFunc(f.Holders, func(a, b HoldingPod) int {
		return cmp.Or(cmp.Compare(b.Devices, a.Devices), strings.Compare(a.Pod, b.Pod))
	})
}

// keysOf names the keys that can differ: those of partitions and of shares only where they play a part.
func keysOf(k *device.Keys, share bool) []DeviceKey {
	keys := []DeviceKey{
		{"ring", k.Ring, false},
		{"links", k.Links, false},
		{"nics", k.NICs, true},
		{"numa", k.Nodes, true},
		{"closeness", k.Levels, false},
		{"left", k.Residual, false},
		{"linksLeft", k.LinksLeft, false},
		{"mask", int64(k.Mask), true},
	}
	if share {
		keys = slices.Insert(keys, 5, DeviceKey{"worth", k.Worth, false}, DeviceKey{"spare", k.Spare, true})
	}
	if k.Score != 0 || k.Kept != 0 {
		keys = slices.Insert(keys, 0, DeviceKey{"score", k.Score, false}, DeviceKey{"kept", k.Kept, false})
	}
	return keys
}

// DeviceChoiceOf compares the sets of devices of a node for a pod that holds held; nil where the node gives it none. v
// is the account without the pod.
func DeviceChoiceOf(v *ledger.View, r *place.Request, held []device.Grant) *DeviceChoice {
	next, stop := iter.Pull(place.DeviceSets(v, r))
	defer stop()
	out := &DeviceChoice{}
	for len(out.Sets) < setsShown {
		set, ok := next()
		if !ok {
			break
		}
		out.Approximate = out.Approximate || set.Approximate
		out.Sets = append(out.Sets, setOf(v, &set, r, held))
	}
	if len(out.Sets) == 0 {
		return nil
	}
	_, out.More = next()
	if len(out.Sets) > 1 {
		for i, key := range out.Sets[0].Keys {
			if i < len(out.Sets[1].Keys) && key != out.Sets[1].Keys[i] {
				out.Decided = key.Name
				break
			}
		}
	}
	return out
}

func setOf(v *ledger.View, c *device.Choice, r *place.Request, held []device.Grant) DeviceSet {
	first := r.Devices.Types()[0]
	share := slices.ContainsFunc(r.Devices.Parts, func(p device.Part) bool { return p.Type == first && !p.Need.Whole })
	return DeviceSet{
		Devices: DevicesOf(v, c.Grants), Keys: keysOf(&c.Keys, share),
		Held: len(held) > 0 && slices.EqualFunc(device.SortedGrants(c.Grants), held, func(a, b device.Grant) bool {
			return a.Type == b.Type && a.ID == b.ID
		}),
	}
}

// DeviceFitOf says what a node has for the devices of a pod; nil where they are not Tenon's to give there.
func DeviceFitOf(v *ledger.View, r *place.Request) *DeviceFit {
	if r = r.On(v.Facts()); r.Devices == nil || v.Devices() == nil || !v.Facts().OwnDevices {
		return nil
	}
	for c := range place.DeviceSets(v, r) {
		set := setOf(v, &c, r, nil)
		return &DeviceFit{Set: &set}
	}
	reason := v.Devices().Fits(r.Devices, &r.Options)
	if reason.Code == why.DeviceMissing || reason.Type == "" {
		return nil
	}
	i := slices.IndexFunc(r.Devices.Parts, func(p device.Part) bool { return p.Type == reason.Type })
	need := &r.Devices.Parts[i].Need
	unknown := memoryUnknown(v.Devices(), reason.Type)
	if unknown {
		reason.Best[device.Bytes] = 0 // it counts percent
	}
	out := &DeviceFit{
		Type: string(reason.Type), Asked: max(reason.Asked, 1), Need: needText(reason.Type, need), Fit: reason.Free,
		Whole: reason.Whole, Best: amountTexts(reason.Best.Amounts(reason.Type, 0)),
	}
	out.Miss = missing(reason, need)
	out.addHolders(v, r.Namespace)
	if unknown && need.Amount[device.Bytes] > 0 {
		out.Miss = fmt.Sprintf(
			"a known memory size of one %s: its Device object has no %s (the agent reports it where "+
				"it can read the driver's library); %s needs no size",
			reason.Type,
			device.GPUMemory,
			device.GPURatio,
		)
	}
	return out
}

// memoryUnknown reports whether no healthy device of a type reports the size of its memory.
func memoryUnknown(v *device.View, t device.Type) (unknown bool) {
	for d := range v.Devices() {
		switch {
		case d.Type != t || !d.Healthy:
		case !d.MemoryUnknown:
			return false
		default:
			unknown = true
		}
	}
	return unknown
}

// needText is what a part asks of each device: "whole", "50%", "30% + 4Gi".
func needText(t device.Type, n *device.Need) string {
	if n.Whole {
		return strings.TrimSpace("whole " + n.Profile)
	}
	var parts []string
	if share := n.Amount[device.Share]; t != device.GPU {
		return strconv.FormatInt(share, 10) + "%"
	}
	if cores := n.Amount[device.Cores]; cores > 0 {
		parts = append(parts, fmt.Sprintf("%d%% of the cores", cores))
	}
	switch {
	case n.Amount[device.Bytes] > 0:
		parts = append(parts, BytesText(n.Amount[device.Bytes]))
	case n.Ratio > 0:
		parts = append(parts, fmt.Sprintf("%d%% of the memory", n.Ratio))
	}
	return strings.Join(parts, " and ")
}

// missing is what the best device lacks of a share, else the number of devices that are missing.
func missing(r device.Reason, n *device.Need) string {
	if short := max(r.Asked, 1) - r.Free; n.Whole || r.Free > 0 {
		return Count(int(max(short, 1)), "more "+cmp.Or(strings.TrimSpace(n.Profile), string(r.Type)))
	}
	var parts []string
	for _, d := range [...]device.Dim{device.Cores, device.Share} {
		if short := n.Amount[d] - r.Best[d]; short > 0 {
			parts = append(parts, fmt.Sprintf("%d%% more of one %s", short, r.Type))
		}
	}
	if short := n.Amount[device.Bytes] - r.Best[device.Bytes]; short > 0 {
		parts = append(parts, fmt.Sprintf("%s more memory of one %s", BytesText(short), r.Type))
	}
	return strings.Join(parts, ", ")
}

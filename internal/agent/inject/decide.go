package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
)

// Variables that name GPUs to the vendors' runtimes, and the value for none.
const (
	nvidiaVisible = "NVIDIA_VISIBLE_DEVICES"
	amdVisible    = "AMD_VISIBLE_DEVICES"
	void          = "void"
)

// Decide returns what to set on a container that is to be created. The error is a *Refusal.
func Decide(n *Node, c *Container) (Answer, error) {
	if n.Mode == annotation.DeviceFollow {
		return Answer{}, nil
	}
	allocated, err := allocations(c)
	if err != nil {
		return Answer{}, err
	}
	owned := n.owned(c, allocated)
	if missing := slices.IndexFunc(c.Asks, func(kind annotation.DeviceType) bool {
		return slices.Contains(owned, kind) && len(allocated[kind]) == 0
	}); missing >= 0 {
		return Answer{}, refuse(ErrUnallocated, "the pod requests devices of type %s, and its annotation %s has none: "+
			"it was not bound by Tenon's scheduler", c.Asks[missing], annotation.DeviceAllocatedKey)
	}
	if err := n.refuseGranted(c, allocated); err != nil {
		return Answer{}, err
	}
	d := &decision{Node: n, c: c, owned: owned}
	for _, kind := range slices.Sorted(maps.Keys(allocated)) {
		for i := range allocated[kind] {
			if err := d.give(kind, &allocated[kind][i]); err != nil {
				return Answer{}, err
			}
		}
	}
	d.addCommon()
	d.setVisible()
	if err := d.limit(); err != nil {
		return Answer{}, err
	}
	return d.Answer, d.conflict()
}

// allocations reads the allocation of the container's pod; none where it has no annotation.
func allocations(c *Container) (annotation.DeviceAllocations, error) {
	text, ok := c.Annotations[annotation.DeviceAllocatedKey]
	if !ok {
		return nil, nil
	}
	allocated, _, err := annotation.ParseDeviceAllocations(text)
	if err != nil {
		return nil, refuse(ErrMalformed, "annotation %s: %v", annotation.DeviceAllocatedKey, err)
	}
	return allocated, nil
}

// owned returns the types of device of which the container gets what was allocated and nothing else. Without a Device
// object, and while a node moves, those are the allocated ones alone: others may be of the kubelet's plugins.
func (n *Node) owned(c *Container, allocated annotation.DeviceAllocations) []annotation.DeviceType {
	types := slices.Sorted(maps.Keys(allocated))
	if n.Mode == annotation.DeviceOwn && (len(allocated) > 0 || !n.exempts(c)) {
		types = append(types, n.Types...)
	}
	return types
}

func (n *Node) exempts(c *Container) bool {
	return slices.ContainsFunc(n.Exempt, func(e Exemption) bool {
		return e.Namespace == c.Namespace && e.Selector.Matches(labels.Set(c.Labels))
	})
}

// refuseGranted refuses a container of a pod without an allocation, on a node that moves, whose environment names a
// device that a pod with an allocation has: the kubelet knows nothing of those.
func (n *Node) refuseGranted(c *Container, allocated annotation.DeviceAllocations) error {
	if n.Mode != annotation.DeviceMoving || len(allocated) > 0 || n.Resolve == nil {
		return nil
	}
	for _, d := range Visible(c.Has.Env) {
		if id := n.Resolve(d.ID); n.Granted[id] {
			return refuse(ErrConflict, "the kubelet gives it %s, which Tenon's scheduler gave to another pod", id)
		}
	}
	return nil
}

// Visible returns the GPUs that an environment names, by the resource of the vendor's device plugin. All and none are
// no names: images say so, whatever their container was given. The last of two equal variables counts.
func Visible(env []string) (gpus []host.Device) {
	for variable, resource := range map[string]string{nvidiaVisible: "nvidia.com/gpu", amdVisible: "amd.com/gpu"} {
		last := ""
		for _, e := range env {
			if value, found := strings.CutPrefix(e, variable+"="); found {
				last = value
			}
		}
		for name := range strings.SplitSeq(last, ",") {
			name = strings.TrimSpace(name)
			if !slices.Contains([]string{"", "all", "none", void}, name) && name[0] != '/' {
				gpus = append(gpus, host.Device{Resource: resource, ID: name})
			}
		}
	}
	return gpus
}

// decision is an Answer in the making.
type decision struct {
	*Node
	Answer
	c     *Container
	owned []annotation.DeviceType
	// cards are those that the container gets, and what it gets of them.
	cards []given
	// named are the cards that the pod's allocation has named, also those of other containers.
	named []*host.Card
}

// given is a card of a container.
type given struct {
	*host.Card
	amounts annotation.DeviceAmounts
}

// give adds one allocated device, if the container is one of those that it was allocated to.
func (d *decision) give(kind annotation.DeviceType, a *annotation.DeviceAllocation) error {
	if a.ID == "" {
		return refuse(ErrMalformed, "annotation %s: %s with minor %d has no id: minors identify no device, as they "+
			"change when a machine starts", annotation.DeviceAllocatedKey, kind, *a.Minor)
	}
	var e annotation.DeviceExtension
	if a.Extension != nil {
		e = *a.Extension
	}
	if e.GPUSharedResourceTemplate != "" {
		return refuse(ErrUnavailable, "template %s of %s %s: the agent does not put Ascend NPUs into containers",
			e.GPUSharedResourceTemplate, kind, a.ID)
	}
	device, err := d.find(kind, a.ID)
	if err != nil {
		return err
	}
	if holder, held := d.Foreign[a.ID]; held {
		return refuse(ErrConflict, "the pod with UID %s has %s %s of another program than Tenon's scheduler", holder,
			kind, a.ID)
	}
	cards := []*host.Card{device}
	if len(e.VFs) > 0 {
		cards = nil
	}
	for _, vf := range e.VFs {
		function, err := d.find(kind, vf.BusID)
		if err != nil {
			return err
		}
		if function.Parent != device.BusID {
			return refuse(ErrUnavailable, "%s %s is not a virtual function of %s", kind, vf.BusID, a.ID)
		}
		cards = append(cards, function)
	}
	amounts, mine := e.Containers[d.c.Name]
	if _, sum := e.Containers[""]; sum || len(e.Containers) == 0 { // the pod's, not that of single containers
		amounts, mine = a.Resources, true
	}
	for _, card := range cards {
		if slices.Contains(d.named, card) {
			return refuse(ErrMalformed, "annotation %s names the device at %s twice", annotation.DeviceAllocatedKey,
				card.BusID)
		}
		d.named = append(d.named, card)
		if mine {
			d.cards = append(d.cards, given{card, amounts})
			d.Files = append(d.Files, card.Files...)
		}
	}
	return nil
}

// find returns the card of an id. The minor of an allocation plays no role: the driver's counts.
func (d *decision) find(kind annotation.DeviceType, id string) (found *host.Card, err error) {
	for i := range d.Cards.List {
		if c := &d.Cards.List[i]; c.ID == id && c.Kind.Type() == kind {
			if found != nil {
				return nil, refuse(ErrUnavailable, "%s and %s are both the %s %s", found.BusID, c.BusID, kind, id)
			}
			found = c
		}
	}
	if found == nil {
		return nil, refuse(ErrUnavailable, "no driver of this machine has the %s %q", kind, id)
	}
	if len(found.Files) == 0 {
		return nil, refuse(ErrUnavailable, "the %s %s at %s has no device file", kind, id, found.BusID)
	}
	return found, nil
}

// addCommon adds the files that cards need beside their own, and the CDI names.
func (d *decision) addCommon() {
	slices.SortFunc(d.cards, func(a, b given) int { return strings.Compare(a.BusID, b.BusID) })
	var done []host.CardKind
	for _, c := range d.cards {
		if !slices.Contains(done, c.Kind) {
			done = append(done, c.Kind)
			d.Files = append(d.Files, d.Cards.Common[c.Kind]...)
		}
		// The toolkit's device brings the libraries of the driver, the agent's the device files alone.
		for _, name := range []string{toolkitName(c.ID), cdiVendor + c.Kind.Type() + "=" + c.ID} {
			if slices.Contains(d.Node.CDI, name) {
				d.Answer.CDI = append(d.Answer.CDI, name)
				break
			}
		}
	}
	slices.SortFunc(d.Files, func(a, b host.DeviceFile) int { return strings.Compare(a.Path, b.Path) })
}

// setVisible names the container's GPUs to the runtimes of the vendors whose GPUs the machine has, in the order of
// their PCI addresses, as libraries number them.
func (d *decision) setVisible() {
	if !slices.Contains(d.owned, annotation.DeviceGPU) {
		return
	}
	ids := map[host.CardKind][]string{host.NVIDIA: nil} // also while no driver is loaded
	for _, c := range d.Cards.List {
		if c.Kind == host.AMD {
			ids[host.AMD] = nil
		}
	}
	for _, c := range d.cards {
		ids[c.Kind] = append(ids[c.Kind], c.ID)
	}
	d.Env = map[string]string{}
	for kind, name := range map[host.CardKind]string{host.NVIDIA: nvidiaVisible, host.AMD: amdVisible} {
		switch list, has := ids[kind]; {
		case len(list) > 0:
			d.Env[name] = strings.Join(list, ",")
		case has:
			d.Env[name] = void
		}
	}
}

// conflict refuses a container that is to have devices of owned types that are not its own. A privileged container
// passes where none was allocated to it, as node agents are such: its variables name none.
func (d *decision) conflict() error {
	if d.c.Has.Privileged && len(d.cards) > 0 && !d.exempts(d.c) {
		return refuse(ErrConflict, "it is privileged and would see all devices of the machine, not just the %d that "+
			"were allocated to it", len(d.cards))
	}
	for _, f := range d.c.Has.Files {
		// A file with the path of one of its own is replaced.
		mine := slices.ContainsFunc(d.Files, func(g host.DeviceFile) bool { return g.Path == f.Path })
		if !mine && !d.c.Has.Privileged && d.manages(f) {
			return refuse(ErrConflict, "another writer, such as a device plugin of the kubelet, gives it %s of a card "+
				"that was not allocated to it", f.Path)
		}
	}
	for _, name := range d.c.Has.CDI {
		if d.managesCDI(name) && !slices.Contains(d.Answer.CDI, name) {
			return refuse(ErrConflict, "another writer, such as a device plugin of the kubelet, gives it the CDI "+
				"device %s, which cannot be taken away", name)
		}
	}
	for name := range d.Env {
		times := 0
		for _, e := range d.c.Has.Env {
			if strings.HasPrefix(e, name+"=") {
				times++
			}
		}
		if times > 1 {
			return refuse(ErrConflict, "its image or its pod sets %s %d times: want it at most once", name, times)
		}
	}
	return nil
}

// manages reports whether a device file is of a card of an owned type, whatever its path is in the container.
func (d *decision) manages(f File) bool {
	same := func(g host.DeviceFile) bool {
		return f.Path == g.Path || f.HostPath == g.Path || f.Major == g.Major && f.Minor == g.Minor && f.Major > 0
	}
	for _, c := range d.Cards.List {
		if slices.Contains(d.owned, c.Kind.Type()) &&
			(slices.ContainsFunc(c.Files, same) || slices.ContainsFunc(d.Cards.Common[c.Kind], same)) {
			return true
		}
	}
	return slices.Contains(d.owned, annotation.DeviceGPU) &&
		(strings.HasPrefix(f.Path, "/dev/nvidia") || strings.HasPrefix(f.HostPath, "/dev/nvidia"))
}

// managesCDI reports whether a CDI name may mean devices of an owned type.
func (d *decision) managesCDI(name string) bool {
	kind, _, _ := strings.Cut(name, "=")
	if own, ours := strings.CutPrefix(kind, cdiVendor); ours {
		return slices.Contains(d.owned, own)
	}
	vendor, _, _ := strings.Cut(kind, "/")
	return slices.Contains(d.owned, annotation.DeviceGPU) &&
		(strings.HasSuffix(vendor, "nvidia.com") || strings.HasSuffix(vendor, "amd.com"))
}

func refuse(cause error, format string, args ...any) *Refusal {
	return &Refusal{cause, fmt.Sprintf(format, args...)}
}

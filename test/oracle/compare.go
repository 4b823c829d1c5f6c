package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tenon-project/tenon/internal/core/hint"
	"github.com/tenon-project/tenon/internal/core/kubelet"
	"github.com/tenon-project/tenon/internal/core/why"
)

// prediction is what our model says of one admission.
type prediction struct {
	placement kubelet.Placement
	// served is what its containers get; of a refused pod, those that come before the one that fails.
	served  kubelet.Placement
	refusal *kubelet.Refusal
	fits    bool // what State.Fits said
}

// panics reports whether the model expects the kubelet to crash.
func (p *prediction) panics() bool {
	return p.refusal != nil && p.refusal.Reason.Code == why.KubeletPanics
}

// uncertain reports whether the prediction says that it may be wrong, and why is not the devices of one container.
func (p *prediction) uncertain() bool {
	return p.refusal != nil && p.refusal.Uncertain ||
		slices.ContainsFunc(p.served, func(g kubelet.Given) bool { return g.Uncertain })
}

// documented is a difference that is known and accepted. A difference that a model could follow is not accepted.
type documented struct {
	name, reason, issue string
}

// Differences that are known. The kubelet itself answers these differently from run to run, and each is accepted only
// where the prediction says so itself: Devices.Open, and Given.Uncertain for what follows.
var (
	deviceChoice = &documented{
		name: "device-choice",
		reason: "A container that needs fewer devices than its pod's init containers left takes some of them in the " +
			"order of a Go " +
			"map; no plugin is asked. Neither their NUMA nodes nor what follows from them in the pod can be " +
			"predicted.",
		issue: "kubernetes#56022, #71312",
	}
	pluginChoice = &documented{
		name: "plugin-choice",
		reason: "Where several sets of devices would do, the device plugin chooses, and the prediction says so " +
			"(Devices.Open). A " +
			"plugin that takes others decides what the later containers of its pod find.",
		issue: "KEP-693, GetPreferredAllocation",
	}
	knownDifferences = []*documented{deviceChoice, pluginChoice}
)

// verdict is the outcome of a comparison: Differences is empty when both sides agree.
type verdict struct {
	differences []string
	known       *documented // set when the differences are a documented one
}

// compare puts a prediction beside the kubelet's answer to the same pod.
func (o *model) compare(p *Pod, pred prediction, a *Answer) verdict {
	var v verdict
	differ := func(format string, args ...any) { v.differences = append(v.differences, fmt.Sprintf(format, args...)) }
	switch {
	case a.Hung:
		differ("the kubelet does not answer")
		return v
	case a.Error != "":
		differ("the program refuses the request: %s", a.Error)
		return v
	case (a.QoS == "Guaranteed") != p.Guaranteed:
		differ("the pod is %s for the kubelet", a.QoS)
		return v
	}
	if pred.fits != (pred.refusal == nil) {
		differ("fits: State.Fits says %v, State.Admit says %v", pred.fits, pred.refusal == nil)
	}
	actual, err := o.placement(a.Containers)
	if err != nil {
		differ("placement: %v", err)
		return v
	}
	free := deviceChoice
	if o.stubborn {
		free = pluginChoice
	}
	// A free choice of devices comes first: what follows it differs for that reason.
	container, open := choseOthers(pred.served, actual)
	switch {
	case container == "":
	case !open:
		differ("container %s, devices: kubelet and model differ where the model has one choice only", container)
		return v
	case !o.stubborn || container != p.Containers[len(p.Containers)-1].Name:
		v.known = free
		differ("devices of %s: others were taken", container)
		return v
	}
	if pred.uncertain() {
		v.known = free
	}
	if a.Admitted != (pred.refusal == nil) {
		differ("verdict: kubelet admitted=%v (%s %s), model admitted=%v %s", a.Admitted, a.Reason, a.Message,
			pred.refusal == nil, describe(pred.refusal))
		return v
	}
	if !a.Admitted {
		if a.Reason != pred.refusal.Status {
			differ("reason: kubelet %s (%s), model %s", a.Reason, a.Message, describe(pred.refusal))
		}
		if a.Last != pred.refusal.Container {
			differ("the kubelet refuses at container %q, model %s", a.Last, describe(pred.refusal))
		}
		return v
	}
	for _, want := range actual {
		i := slices.IndexFunc(pred.placement, func(g kubelet.Given) bool { return g.Container == want.Container })
		if i < 0 {
			if !want.CPUs.IsEmpty() || len(want.Memory)+len(want.Devices) > 0 {
				differ("container %s: the model gives nothing", want.Container)
			}
			continue
		}
		o.compareGiven(want, pred.placement[i], differ)
	}
	return v
}

// compareHints puts the hint lists of every merge beside the kubelet's. They are what `explain --hints` shows.
func (o *model) compareHints(p *kubelet.Pod, a *Answer) []string {
	var found []string
	if len(p.Containers) == 0 { // the scheduler leaves the pod out: the kubelet must have no hints for it
		for i, lists := range a.Hints {
			for resource, list := range lists {
				if list != nil {
					found = append(found, fmt.Sprintf("merge %d, hints of %s: kubelet %v, model none", i+1, resource,
						list))
				}
			}
		}
		return found
	}
	merges := 0
	for _, s := range o.state.Explain(p).Steps {
		if s.Lists == nil {
			continue
		}
		if merges++; merges > len(a.Hints) {
			break
		}
		kubelet := a.Hints[merges-1]
		for _, ours := range s.Lists {
			theirs, known := kubelet[ours.Resource]
			list, err := o.list(theirs)
			if err != nil {
				return []string{err.Error()}
			}
			if want, got := sortedHints(list), sortedHints(ours.List); !known && got != nil ||
				(want == nil) != (got == nil) || !slices.Equal(want, got) {
				found = append(found, fmt.Sprintf("merge %d, hints of %s: kubelet %v, model %v", merges, ours.Resource,
					want, got))
			}
		}
	}
	if merges != len(a.Hints) {
		found = append(found, fmt.Sprintf("the kubelet merges %d times, the model %d times", len(a.Hints), merges))
	}
	return found
}

func (o *model) list(offers []Offer) (hint.List, error) {
	if offers == nil {
		return nil, nil
	}
	list := hint.List{}
	for _, f := range offers {
		mask, err := o.mask(f.Mask)
		if err != nil {
			return nil, err
		}
		list = append(list, hint.Hint{Mask: mask, Preferred: f.Preferred})
	}
	return list, nil
}

func sortedHints(list hint.List) hint.List {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b hint.Hint) int { return cmp.Compare(a.Mask, b.Mask) })
	return list
}

func (o *model) compareGiven(want, got kubelet.Given, differ func(string, ...any)) {
	name := want.Container
	if o.aligns && want.Hint != got.Hint {
		differ("container %s, hint: kubelet %v %v, model %v %v", name, o.ids(want.Hint.Mask), want.Hint.Preferred,
			o.ids(got.Hint.Mask), got.Hint.Preferred)
	}
	if want.CPUs != got.CPUs {
		differ("container %s, CPUs: kubelet %q, model %q", name, o.machine.FormatList(want.CPUs),
			o.machine.FormatList(got.CPUs))
	}
	if w, g := sortedBlocks(want.Memory), sortedBlocks(got.Memory); !slices.Equal(w, g) {
		differ("container %s, memory: kubelet %v, model %v", name, w, g)
	}
	if w, g := sortedDevices(want.Devices), sortedDevices(got.Devices); !slices.Equal(w, g) && !o.stubborn {
		differ("container %s, devices: kubelet %v, model %v", name, w, g)
	}
}

func sortedBlocks(list []kubelet.Block) []kubelet.Block {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b kubelet.Block) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Nodes, b.Nodes))
	})
	return list
}

func sortedDevices(list []kubelet.Devices) []kubelet.Devices {
	list = slices.Clone(list)
	for i := range list {
		list[i].Open = false // says that others could be taken, not which are
	}
	sortDevices(list)
	return list
}

func describe(r *kubelet.Refusal) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("(%s, container %q: %v)", r.Status, r.Container, r.Reason)
}

// choseOthers returns the first container that got other devices than predicted, and whether the model left all of them
// open: as many of each resource, from sets of which it predicted no single one.
func choseOthers(served, actual kubelet.Placement) (container string, open bool) {
	for _, got := range actual {
		i := slices.IndexFunc(served, func(g kubelet.Given) bool { return g.Container == got.Container })
		if i < 0 {
			continue
		}
		want := served[i]
		if slices.Equal(sortedDevices(want.Devices), sortedDevices(got.Devices)) {
			continue
		}
		for _, d := range slices.Concat(want.Devices, got.Devices) {
			w, g := devicesOf(want.Devices, d.Resource), devicesOf(got.Devices, d.Resource)
			if slices.Equal(sortedDevices(w), sortedDevices(g)) {
				continue
			}
			if total(w) != total(g) || !slices.ContainsFunc(w, func(d kubelet.Devices) bool { return d.Open }) {
				return got.Container, false
			}
		}
		return got.Container, true
	}
	return "", true
}

func devicesOf(list []kubelet.Devices, resource string) []kubelet.Devices {
	return slices.DeleteFunc(slices.Clone(list), func(d kubelet.Devices) bool { return d.Resource != resource })
}

func total(list []kubelet.Devices) int {
	n := 0
	for _, d := range list {
		n += d.Count
	}
	return n
}

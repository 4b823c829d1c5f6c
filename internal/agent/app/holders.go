package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/agent/observe"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// addHolders writes into a Device what pods have of its devices that Tenon's scheduler did not give them, and the mode
// that follows. Until the kubelet's records are read, what is published counts.
func (a *Agent) addHolders(d, published *devicev1alpha1.Device) {
	a.facts.mu.Lock()
	a.facts.inventory = convert.Inventory(d)
	seen := a.facts.deviceMode
	a.facts.mu.Unlock()
	if published == nil {
		published = &devicev1alpha1.Device{}
	}
	const mode = annotation.DeviceModeKey
	granted := func(pod *convert.Pod) bool { return len(pod.Entry.Devices) > 0 }
	switch {
	case published.Annotations[mode] != "" || d.Annotations[mode] != annotation.DeviceFollow:
	case seen != "": // the object was deleted
		d.Annotations[mode] = seen
	case slices.ContainsFunc(a.Pods(), granted): // also before this agent: the kubelet does not know those pods
		d.Annotations[mode] = annotation.DeviceMoving
	}
	text := published.Annotations[annotation.DevicesCheckpointsKey]
	f, known := a.holders()
	if known && (len(f.Holders) > 0 || text != "") {
		text = f.Holders.String() // an annotation that is left out would remain
	}
	if text != "" {
		d.Annotations[annotation.DevicesCheckpointsKey] = text
	}
	if !known {
		return
	}
	has := func(c annotation.DevicesCheckpoint) bool { return len(c.DeviceIDs) > 0 }
	held := len(f.Unknown) > 0 || slices.ContainsFunc(f.Holders, has)
	d.Annotations[mode] = probe.DeviceModeOf(a.o.DeviceMode, d.Annotations[mode], held)
	for i := range d.Spec.Devices {
		if device := &d.Spec.Devices[i]; slices.Contains(f.Disputed, device.ID) {
			device.Conditions = append(device.Conditions, metav1.Condition{
				Type: devicev1alpha1.Foreign, Status: metav1.ConditionTrue, Reason: "SourcesDisagree",
				Message: "PodResources, the kubelet's checkpoint and the environment of containers name different GPUs",
			})
		}
	}
	probe.Date(d.Spec.Devices, published, metav1.NewTime(a.o.Clock.Now()))
}

// holders returns what pods have that Tenon's scheduler did not give them, and keeps it for answers about containers;
// false while that is not known.
func (a *Agent) holders() (observe.Foreign, bool) {
	a.holding.Lock()
	defer a.holding.Unlock()
	a.facts.mu.Lock()
	inv := a.facts.inventory
	a.facts.mu.Unlock()
	if inv == nil {
		return observe.Foreign{}, false
	}
	f, known := a.kubelet.Foreign(inv, a.service.Visible())
	if !known {
		return f, false
	}
	foreign, granted := map[string]string{}, map[string]bool{}
	for _, c := range f.Holders {
		for _, name := range c.DeviceIDs {
			foreign[inv.Resolve(name)] = string(c.PodUID)
		}
	}
	for _, pod := range a.Pods() {
		for _, g := range pod.Entry.Devices {
			granted[g.ID] = g.ID != "" // an old annotation may say the minor alone
		}
	}
	a.o.Shared.Metrics.Foreign.WithLabelValues(a.o.Node).Set(float64(len(foreign)))
	a.setDevices(func(n *inject.Node) { n.Foreign, n.Granted, n.Resolve = foreign, granted, inv.Resolve })
	return f, true
}

// compareHolders publishes holders that have changed, and reports what contradicts the pods of the API, or is not
// known. It counts once it has lasted from one resync to the next: one source may just have been ahead of another.
func (a *Agent) compareHolders(ctx context.Context) error {
	f, known := a.holders()
	if !known {
		return nil
	}
	if text := f.Holders.String(); text != a.last.reported {
		a.last.reported = text
		a.requestPublish()
	}
	n := a.injects.Load()
	var found, unknown, twice []string
	for _, c := range f.Holders {
		for _, name := range c.DeviceIDs {
			if id := n.Resolve(name); id == "" {
				unknown = append(unknown, name)
			} else if n.Granted[id] {
				twice = append(twice, id)
			}
		}
	}
	say := func(format string, list []string) {
		if len(list) > 0 && n.Mode != annotation.DeviceFollow {
			found = append(found, fmt.Sprintf(format, strings.Join(slices.Compact(list), ", ")))
		}
	}
	say("the kubelet's pods have the devices %s, which the Device object does not list", unknown)
	say("the kubelet allocated %s, which Tenon's scheduler allocated to another pod", twice)
	say("devices are in use by pods that the API does not have (namespace/name or UID): %s", f.Stale)
	say("the sources name different devices for one container: %s", f.Disputed)
	say("no source names the devices of the pods %s", f.Unknown)
	text, now := strings.Join(found, "; "), a.o.Clock.Now()
	if text != a.last.unclear {
		a.last.unclear, a.last.unclearSince = text, now
	}
	if now.Sub(a.last.unclearSince) < a.o.Resync {
		return nil
	}
	set := a.status.Condition(event.DeviceHoldersUnclear, "devices")
	if text != "" && a.last.unclearSince != a.last.unclearCounted {
		a.last.unclearCounted = a.last.unclearSince
		a.o.Shared.Metrics.Mismatch.WithLabelValues(a.o.Node, status.SourcePodResources).Inc()
	}
	if text == "" {
		return set(ctx, false, "Consistent", "the holders of devices are those that the API has")
	}
	return set(ctx, true, "Contradictory", text)
}

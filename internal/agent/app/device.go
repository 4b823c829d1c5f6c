package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/deviceplugin"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/core/device"
)

// deviceFile keeps, in the agent's folder, what the Device object says: containers start while the API server is away.
const deviceFile = "device.json"

// deviceRecord is what answers about containers depend on of a Device object.
type deviceRecord struct {
	Mode  annotation.DeviceMode   `json:"mode"`
	Types []annotation.DeviceType `json:"types"`
}

// loadDevices reads what an earlier agent kept.
func (a *Agent) loadDevices() error {
	var kept deviceRecord
	_, err := a.dir.Load(deviceFile, &kept)
	a.injects.Store(&inject.Node{Mode: kept.Mode, Types: kept.Types, Exempt: a.o.DeviceExempt})
	return err
}

// wakeDevices makes followDevices look at once.
func (a *Agent) wakeDevices() {
	select {
	case a.synced <- struct{}{}:
	default:
	}
}

// setDevices changes what is known of the node's devices.
func (a *Agent) setDevices(change func(*inject.Node)) {
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	n := *a.injects.Load()
	change(&n)
	a.injects.Store(&n)
}

// readCards reads the machine's cards, and describes them to the runtime. What cannot be read is left out, so that a
// container which needs it is refused.
func (a *Agent) readCards() error {
	cards, err1 := host.ReadCards(a.o.Root)
	devices, mps := a.found.Devices(nil), inject.HasMPS(a.o.Root)
	cards.Add(devices)
	names, err2 := inject.Describe(a.o.Root, &cards, func() { a.setDevices(func(n *inject.Node) { n.CDI = nil }) })
	a.setDevices(func(n *inject.Node) {
		n.Cards, n.CDI, n.MPS, n.Exclusive = cards, names, mps, inject.Exclusive(devices)
	})
	return errors.Join(err1, err2)
}

// followDevices reads the cards at every resync, and whenever a runtime has reported its containers or the kubelet has
// lost a plugin, until ctx ends, compares what containers can use of them, and follows the Device object of a machine
// with devices. It is a part of its own: a driver that hangs holds up nothing else.
func (a *Agent) followDevices(ctx context.Context, g *group) error {
	tick := a.o.Clock.NewTicker(a.o.Resync)
	defer tick.Stop()
	watched, last, plugins := false, "", map[string]context.CancelFunc{}
	for {
		err := a.readCards()
		if err == nil {
			err = a.service.CompareDevices(func(group string) (host.Access, bool, error) {
				return host.ReadAccess(a.o.Root, group)
			})
		}
		if text := fmt.Sprint(err); err != nil && text != last {
			last = text
			klog.FromContext(ctx).Error(err, "Cannot read, describe or compare all cards", "node", a.o.Node)
		}
		if !watched && (a.injects.Load().HasDevices() || len(a.found.Devices(nil)) > 0) {
			watched = true
			g.run(a.watchDevice)
		}
		a.registerPlugins(ctx, g, plugins)
		select {
		case <-tick.C():
		case <-a.synced:
		case <-ctx.Done():
			return nil
		}
	}
}

// wantedPlugins returns the device plugins that a node needs, with the number of their devices; running are those that
// it has. Where the vendor's plugin is gone from a node of Tenon the agent's takes its place: the resource that remains
// in the Node would be 0, at which the kubelet refuses the pods that the scheduler gave GPUs.
func wantedPlugins(n *inject.Node, exhausted []string, running map[string]context.CancelFunc) map[string]int {
	want := map[string]int{}
	if n.HasDevices() {
		want[annotation.ResourcePresence] = 1
	}
	gpus := 0
	for _, c := range n.Cards.List {
		if c.Kind.Type() == annotation.DeviceGPU {
			gpus++
		}
	}
	if gpus == 0 || n.Mode != annotation.DeviceOwn {
		return want
	}
	for _, name := range slices.AppendSeq(exhausted, maps.Keys(running)) {
		if device.IsWholeGPU(name) {
			want[name] = gpus
		}
	}
	return want
}

// exhausted returns the names of whole GPUs that a Node has, and of which the kubelet has none to give: by the Node, or
// by lost, which knows it earlier; nil knows nothing.
func exhausted(node *corev1.Node, lost func(resource string) bool) (names []string) {
	if node == nil {
		return nil
	}
	for name := range node.Status.Capacity {
		free := node.Status.Allocatable[name]
		if device.IsWholeGPU(string(name)) && (free.IsZero() || lost != nil && lost(string(name))) {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names
}

// registerPlugins serves the device plugins that the node needs, and ends the others; running has what ends each.
func (a *Agent) registerPlugins(ctx context.Context, g *group, running map[string]context.CancelFunc) {
	if !a.o.RegisterPlugins {
		return
	}
	want := wantedPlugins(a.injects.Load(), exhausted(a.CurrentNode(), a.kubelet.HasLost), running)
	if a.leaving.Load() {
		clear(want)
	}
	for name, devices := range want {
		if running[name] != nil {
			continue
		}
		var served context.Context
		served, running[name] = context.WithCancel(ctx)
		g.run(func(context.Context) error {
			deviceplugin.Serve(served, a.o.Root, name, devices, func(err error) {
				klog.FromContext(ctx).Error(err, "A device plugin is not registered with the kubelet", "node", a.o.Node)
			})
			return nil
		})
	}
	for name, end := range running {
		if want[name] == 0 {
			end()
			delete(running, name)
		}
	}
}

// watchDevice follows the node's Device object. When it is deleted, what it said last counts: without it any container
// could see devices that pods hold. The mode Follow gives them back to the kubelet.
func (a *Agent) watchDevice(ctx context.Context) error {
	if a.api.waitServed(ctx, v1alpha1.Resource()) != nil {
		return nil //nolint:nilerr // the agent ends
	}
	inf := a.api.object(v1alpha1.Resource())
	log := klog.LoggerWithValues(klog.FromContext(ctx), "node", a.o.Node)
	err := handle(inf, func(u *unstructured.Unstructured) {
		if err := a.updateDevice(u); err != nil {
			log.Error(err, "The Device object cannot be used or kept")
		}
	}, func(*unstructured.Unstructured) { log.Info("The Device object is gone, its last mode and types count") })
	if err == nil {
		inf.RunWithContext(ctx)
	}
	return err
}

func (a *Agent) updateDevice(u *unstructured.Unstructured) error {
	text, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	d, _, err := v1alpha1.Decode(text)
	if err != nil {
		return err
	}
	mode, _, err := annotation.ParseDeviceMode(d.Annotations[annotation.DeviceModeKey])
	if err != nil {
		return fmt.Errorf("annotation %s: %w", annotation.DeviceModeKey, err)
	}
	r := deviceRecord{Mode: mode}
	for _, device := range d.Spec.Devices {
		r.Types = append(r.Types, device.Type)
	}
	slices.Sort(r.Types)
	r.Types = slices.Compact(r.Types)
	a.setDevices(func(n *inject.Node) { n.Mode, n.Types, a.facts.deviceMode = r.Mode, r.Types, r.Mode })
	a.wakeDevices()
	return a.dir.Save(deviceFile, r)
}

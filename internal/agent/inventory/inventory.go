package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/core/device"
)

// processesLast is how long what a drop file says of processes counts: its program may have ended.
const processesLast = 2 * time.Minute

// Options are what an Inventory needs.
type Options struct {
	// Root has the drop files; without a folder none are read.
	Root host.Root
	// Boot is the boot id: what was known of devices in another boot is dropped. Dir "" keeps nothing.
	Boot    string
	Dir     statedir.Dir
	Drivers []Driver
	// Pace is the least time between two looks at the drivers.
	Pace time.Duration
	// Changed is called when an event has changed the health of a device.
	Changed func()
	Clock   clock.Clock
}

// Inventory is what is known of the devices of a machine. Refresh has one caller at a time; the other methods are safe
// for concurrent use.
type Inventory struct {
	o       Options
	drivers []*driver // owned by Refresh, but for their lists
	looked  time.Time

	mu      sync.Mutex // guards the fields below, and the lists of drivers; never held across a call out of the package
	known   []*record
	dropped []host.Dropped
	used    map[string]map[int]int64 // what drop files say of processes, as Processes returns it
	last    []host.Dropped           // what Refresh found
}

// record is the health of a device since the machine started, by one driver.
type record struct {
	Driver string              `json:"driver"`
	Type   string              `json:"type"`
	UUID   string              `json:"uuid"`
	Parent string              `json:"parent,omitempty"` // UUID of the GPU that it is a slice of
	Health device.Health       `json:"health"`
	Why    *host.DroppedStatus `json:"why,omitempty"` // of the last probe that was not good
	seen   bool                // by the last look
	shown  bool                // the API has the condition of a damaged device
}

// healthFile keeps, in the agent's folder, what was known when the agent ended.
const healthFile = "device-health.json"

type healthRecord struct {
	Boot    string   `json:"boot"`
	Devices []record `json:"devices"`
}

// New returns an Inventory with what an earlier agent knew of this boot. The error says why it knows nothing of that;
// the Inventory is usable all the same.
func New(o Options) (_ *Inventory, err error) {
	v := &Inventory{o: o}
	var kept healthRecord
	if o.Dir != "" {
		_, err = o.Dir.Load(healthFile, &kept)
	}
	for _, d := range o.Drivers {
		v.drivers = append(v.drivers, &driver{Driver: d})
		for _, r := range kept.Devices {
			if kept.Boot == o.Boot && r.Driver == d.Name {
				v.known = append(v.known, &r)
			}
		}
	}
	return v, err
}

// Refresh reads the drop files, and the drivers when that is due. It reports whether the devices have changed, and what
// cannot be read. A driver that hangs is waited for once.
func (v *Inventory) Refresh(ctx context.Context) (changed bool, err error) {
	var faults []error
	if now := v.o.Clock.Now(); v.looked.IsZero() || now.Sub(v.looked).Abs() >= v.o.Pace {
		v.looked = now
		for _, d := range v.drivers {
			d.begin(now)
		}
		for _, d := range v.drivers {
			a := d.wait(ctx)
			select {
			case <-ctx.Done(): // the agent ends: not the driver's fault
				return false, nil
			default:
			}
			if a.err != nil {
				faults = append(faults, fmt.Errorf("driver %s: %w", d.Name, a.err))
			}
			v.observe(d, a)
		}
	}
	var dropped []host.Dropped
	used := map[string]map[int]int64{}
	if v.o.Root.Dir != "" {
		var err error
		dropped, err = host.ReadDropped(v.o.Root)
		faults = append(faults, err)
		for i := range dropped {
			if p := dropped[i].Processes; p != nil {
				if v.o.Clock.Since(dropped[i].Written) < processesLast {
					used[dropped[i].UUID] = p
				}
				dropped[i].Processes, dropped[i].Written = nil, time.Time{}
			}
		}
	}
	kept := healthRecord{Boot: v.o.Boot}
	v.mu.Lock()
	v.dropped, v.used = dropped, used
	found := v.merged()
	changed, v.last = !reflect.DeepEqual(found, v.last), found
	for _, r := range v.known {
		kept.Devices = append(kept.Devices, *r)
	}
	v.mu.Unlock()
	if len(kept.Devices) > 0 && v.o.Dir != "" {
		faults = append(faults, v.o.Dir.Save(healthFile, kept))
	}
	return changed, errors.Join(faults...)
}

// observe counts a look as a probe of each device of a driver, also of those that it does not list any more.
func (v *Inventory) observe(d *driver, a answer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now, hangs := v.o.Clock.Now(), errors.Is(a.err, errHangs)
	if !hangs {
		d.list = a.list
	}
	for i := range a.list {
		r, f := v.record(d.Name, &a.list[i]), Fault{Probe: device.Works}
		if s := a.list[i].Status; s != nil && !s.Healthy {
			f = Fault{Probe: device.Fails, Status: s}
		}
		r.seen = true
		r.probe(f, now)
	}
	missing := Fault{Probe: device.Breaks, Status: host.Fails("Lost", "the driver does not list it any more")}
	switch {
	case hangs:
		missing.Status = host.Fails("DriverHangs", "the driver %v", errHangs)
	case a.err != nil:
		missing = Fault{Probe: device.Fails, Status: host.Fails("Unread", "%v", a.err)}
	}
	for _, r := range v.known {
		if r.Driver == d.Name && !r.seen {
			r.probe(missing, now)
		}
		r.seen = false
	}
}

// record returns that of a device of a driver; it is added when it is new.
func (v *Inventory) record(driver string, d *host.Dropped) *record {
	for _, r := range v.known {
		if r.Driver == driver && r.Type == d.Type && r.UUID == d.UUID {
			return r
		}
	}
	r := &record{Driver: driver, Type: d.Type, UUID: d.UUID, Parent: d.Labels[annotation.MIGParentLabel]}
	v.known = append(v.known, r)
	return r
}

func (r *record) probe(f Fault, now time.Time) {
	if f.Probe == device.Damages || f.Probe != device.Works && !r.Health.Damaged {
		r.Why = f.Status
	}
	r.Health = r.Health.After(f.Probe, now)
}

// status is what to publish of the device's health; nil for a healthy one.
func (r *record) status() *host.DroppedStatus {
	switch r.Health.State {
	case device.Suspect:
		return &host.DroppedStatus{Healthy: true, Degraded: true, ErrCode: "Suspect", ErrMessage: r.Why.ErrMessage}
	case device.Recovering:
		return host.Fails("Recovering", "works again; before: %s", r.Why.ErrMessage)
	case device.Unhealthy:
		return r.Why
	}
	return nil
}

// merged is what is known now. It is called with mu held.
func (v *Inventory) merged() (found []host.Dropped) {
	for _, d := range v.drivers {
		list := slices.Clone(d.list)
		for i := range list {
			list[i].Processes = nil                          // they change all the time
			if s := list[i].Status; s != nil && !s.Healthy { // the state below decides
				list[i].Status = nil
			}
		}
		found = merge(found, list)
	}
	found = merge(found, v.dropped)
	for _, r := range v.known {
		i := slices.IndexFunc(found, func(d host.Dropped) bool { return d.Type == r.Type && d.UUID == r.UUID })
		if i < 0 {
			i, found = len(found), append(found, host.Dropped{Type: r.Type, UUID: r.UUID, IsLost: true})
		}
		found[i].Status = worse(found[i].Status, r.status())
	}
	return found
}

// Devices returns the devices of the machine, and the lost ones of this boot. published is what the API has: a person
// who removes the condition of a damaged device from it says that the device is repaired.
func (v *Inventory) Devices(published *devicev1alpha1.Device) []host.Dropped {
	v.mu.Lock()
	defer v.mu.Unlock()
	if published == nil {
		return v.merged()
	}
	for _, r := range v.known {
		for _, d := range published.Spec.Devices {
			if !r.Health.Damaged || d.Type != r.Type || d.ID != r.UUID {
				continue
			}
			shown := r.shown
			if r.shown = meta.IsStatusConditionFalse(d.Conditions, devicev1alpha1.Healthy); shown && !r.shown {
				r.Health.Damaged = false
			}
		}
	}
	return v.merged()
}

// Processes returns what processes use of the memory of GPUs, as drivers and drop files said last: bytes by UUID and
// process id.
func (v *Inventory) Processes() map[string]map[int]int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	used := map[string]map[int]int64{}
	maps.Copy(used, v.used)
	for _, d := range v.drivers {
		for i := range d.list {
			if d.list[i].Processes != nil {
				used[d.list[i].UUID] = d.list[i].Processes
			}
		}
	}
	return used
}

// Run follows the events of all drivers until ctx ends. It begins anew where they end.
func (v *Inventory) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, d := range v.o.Drivers {
		if d.Watch == nil {
			continue
		}
		wg.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				if err := d.Watch(ctx, func(f Fault) { v.report(d.Name, f) }); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot follow the events of a driver", "driver", d.Name)
				}
			}, time.Minute)
		})
	}
	wg.Wait()
	return nil
}

// report counts an event, also for the slices of its device.
func (v *Inventory) report(driver string, f Fault) {
	v.mu.Lock()
	for _, r := range v.known {
		if r.Driver == driver && (f.UUID == "" || f.UUID == r.UUID || f.UUID == r.Parent) {
			r.probe(f, v.o.Clock.Now())
		}
	}
	v.mu.Unlock()
	v.o.Changed()
}

// merge adds to a list what another source says of its devices, and the devices that it alone has. Devices of a type
// are the same by their UUID, and by their PCI address where both lists have one device there. Of two facts the second
// counts, but for the UUID, by which the files of the driver are found, and for the health, of which the worse counts.
func merge(list, other []host.Dropped) []host.Dropped {
	for _, d := range other {
		i := slices.IndexFunc(list, func(o host.Dropped) bool { return o.Type == d.Type && o.UUID == d.UUID })
		if i < 0 && only(other, &d) >= 0 {
			i = only(list, &d)
		}
		if i < 0 {
			list = append(list, d)
			continue
		}
		var both host.Dropped // shares nothing with what a driver said
		for _, one := range []host.Dropped{list[i], d} {
			text, err := json.Marshal(one)
			if err == nil {
				err = json.Unmarshal(text, &both)
			}
			if err != nil {
				panic(err) // there are only numbers and words
			}
		}
		both.UUID, both.Status = list[i].UUID, worse(list[i].Status, d.Status)
		list[i] = both
	}
	return list
}

// only returns the only device of a list with the type and PCI address of d; -1 where there is none, or another one.
func only(list []host.Dropped, d *host.Dropped) int {
	found := -1
	for i := range list {
		if d.Topology.BusID == "" || list[i].Type != d.Type || list[i].Topology.BusID != d.Topology.BusID {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// worse returns the status of the device that works less.
func worse(a, b *host.DroppedStatus) *host.DroppedStatus {
	if b == nil || a != nil && (!a.Healthy || a.Degraded && b.Healthy) {
		return a
	}
	return b
}

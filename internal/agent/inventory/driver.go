package inventory

import (
	"context"
	"errors"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
)

// Driver is a source of devices that may hang.
type Driver struct {
	Name string
	// Devices describes the devices; a status is what this look found. Beside an error the list may be incomplete.
	Devices func() ([]host.Dropped, error)
	// Watch reports faults until ctx ends; nil for a driver without events.
	Watch func(ctx context.Context, report func(Fault)) error
}

// Fault is why a device does not work.
type Fault struct {
	UUID   string // "" where the driver cannot say of which device it is: it counts for all of them
	Probe  device.Probe
	Status *host.DroppedStatus
}

// Sysfs returns the drivers that are read from files. They are several, so that one that hangs hides no other.
func Sysfs(root host.Root) (list []Driver) {
	for _, kind := range []host.CardKind{host.NVIDIA, host.AMD, host.RDMA, host.FPGA} {
		list = append(list, Driver{Name: string(kind), Devices: func() ([]host.Dropped, error) {
			return host.FindDevices(root, kind)
		}})
	}
	return list
}

// patience is how long a driver is waited for.
const patience = 10 * time.Second

var errHangs = errors.New("has not answered for 10 s")

// driver is a Driver and what it said last.
type driver struct {
	Driver
	list    []host.Dropped
	pending chan answer // of a call that has not returned; nil for none
	begun   time.Time   // when that was
}

type answer struct {
	list []host.Dropped
	err  error
}

// begin asks the driver, unless it has not answered yet.
func (d *driver) begin(now time.Time) {
	if d.pending != nil {
		return
	}
	pending := make(chan answer, 1)
	d.pending, d.begun = pending, now
	go func() {
		list, err := d.Devices()
		pending <- answer{list, err}
	}()
}

// wait returns the answer, or errHangs for one that does not come in time.
func (d *driver) wait(ctx context.Context) answer {
	ctx, cancel := context.WithDeadline(ctx, d.begun.Add(patience))
	defer cancel()
	select {
	case a := <-d.pending:
		d.pending <- a // it has room for one
	case <-ctx.Done():
	}
	select {
	case a := <-d.pending: // also one that comes too late
		d.pending = nil
		return a
	default:
		return answer{err: errHangs}
	}
}

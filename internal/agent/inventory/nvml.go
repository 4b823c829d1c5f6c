//go:build nvml && cgo

package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
)

// NVML returns NVIDIA's library, which is opened when it is asked first: without it the machine has no GPU of NVIDIA.
// Root has the files that say where GPUs are; the NUMA node that the library knows is that of a GPU's own memory.
func NVML(root host.Root) []Driver { return []Driver{nvmlDriver(nvml.New(), root)} }

func nvmlDriver(lib nvml.Interface, root host.Root) Driver {
	l := &library{Interface: lib, root: root}
	return Driver{Name: "nvml", Devices: l.devices, Watch: l.watch}
}

type library struct {
	nvml.Interface
	root    host.Root
	started atomic.Bool // Init has succeeded
}

// failed is nil for a call that succeeded.
func failed(call string, r nvml.Return) error {
	if r == nvml.SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: NVML error %d", call, r)
}

// devices describes all GPUs, and the MIG devices that exist. A GPU that does not answer is left out.
func (l *library) devices() (list []host.Dropped, err error) {
	if !l.started.Load() {
		r := l.Init()
		if r == nvml.ERROR_LIBRARY_NOT_FOUND || r == nvml.ERROR_DRIVER_NOT_LOADED {
			return nil, nil
		}
		if err := failed("Init", r); err != nil {
			return nil, err
		}
		l.started.Store(true)
	}
	handles, err := l.handles()
	if len(handles) == 0 && err != nil && l.started.CompareAndSwap(true, false) {
		l.Shutdown() // the driver may be another one: it is opened anew
	}
	faults := []error{err}
	version, _ := l.SystemGetDriverVersion()
	at := map[string]string{}
	for _, h := range handles {
		d, err := l.describe(h, version)
		if faults = append(faults, err); d.UUID != "" {
			at[d.Topology.BusID] = d.UUID
			list = append(list, d)
		}
	}
	for i := range list { // slices are appended
		h, r := l.DeviceGetHandleByUUID(list[i].UUID)
		if r == nvml.SUCCESS {
			join(h, &list[i].Topology, at)
			list = append(list, l.slicesOf(h, &list[i])...)
		}
	}
	return list, errors.Join(faults...)
}

// handles are those of the GPUs that answer.
func (l *library) handles() (list []nvml.Device, err error) {
	n, r := l.DeviceGetCount()
	faults := []error{failed("DeviceGetCount", r)}
	for i := range n {
		h, r := l.DeviceGetHandleByIndex(i)
		if faults = append(faults, failed(fmt.Sprint("DeviceGetHandleByIndex ", i), r)); r == nvml.SUCCESS {
			list = append(list, h)
		}
	}
	return list, errors.Join(faults...)
}

// has reports whether the driver's library has a function that older ones lack: a call of it would end the process.
func (l *library) has(function string) bool { return l.Extensions().LookupSymbol(function) == nil }

// describe reads what a GPU has; facts that it does not have are left out.
func (l *library) describe(h nvml.Device, version string) (d host.Dropped, err error) {
	uuid, r := h.GetUUID()
	pci, r2 := h.GetPciInfo()
	if r != nvml.SUCCESS || r2 != nvml.SUCCESS {
		return d, errors.Join(failed("GetUUID", r), failed("GetPciInfo "+uuid, r2))
	}
	d = host.Dropped{Type: annotation.DeviceGPU, UUID: uuid, Vendor: "nvidia"}
	d.Topology, err = host.Place(l.root, busOf(&pci))
	d.Model, _ = h.GetName()
	d.Labels = map[string]string{}
	if version != "" {
		d.Labels[annotation.GPUDriverLabel] = version
	}
	if l.has("nvmlDeviceGetGpuFabricInfo") {
		fabric, r := h.GetGpuFabricInfo()
		known := r == nvml.SUCCESS && fabric.State == nvml.GPU_FABRIC_STATE_COMPLETED
		if u := fabric.ClusterUuid; known && u != [16]uint8{} {
			d.Labels[cliqueLabel] = fmt.Sprintf("%x-%x-%x-%x-%x.%d", u[:4], u[4:6], u[6:8], u[8:10], u[10:],
				fabric.CliqueId)
		}
	}
	d.Minor, d.ModuleID = number(h.GetMinorNumber()), number(h.GetModuleId())
	if memory, r := h.GetMemoryInfo(); r == nvml.SUCCESS {
		d.Resources = map[string]string{"gpu-memory": strconv.FormatUint(memory.Total, 10)}
	}
	for _, ask := range []func() ([]nvml.ProcessInfo, nvml.Return){
		h.GetComputeRunningProcesses, h.GetMPSComputeRunningProcesses,
	} {
		processes, _ := ask()
		for _, p := range processes {
			if bytes := int64(p.UsedGpuMemory); bytes > 0 { // the largest number means that it is not known
				if d.Processes == nil {
					d.Processes = map[int]int64{}
				}
				d.Processes[int(p.Pid)] = bytes
			}
		}
	}
	if state, r := h.GetRetiredPagesPendingStatus(); r == nvml.SUCCESS && state == nvml.FEATURE_ENABLED {
		d.Status = resetNeeded()
	}
	if l.has("nvmlDeviceGetSramEccErrorStatus") {
		if sram, r := h.GetSramEccErrorStatus(); r == nvml.SUCCESS && sram.BThresholdExceeded != 0 {
			d.Status = sramErrors()
		}
	}
	switch _, _, pending, failure, r := h.GetRemappedRows(); {
	case r == nvml.SUCCESS && failure:
		d.Status = rowRemapFailure()
	case r == nvml.SUCCESS && pending:
		d.Status = resetNeeded()
	}
	return d, err
}

func number(n int, r nvml.Return) string {
	if r != nvml.SUCCESS {
		return ""
	}
	return strconv.Itoa(n)
}

// busOf is the PCI address of a GPU, whose function is 0.
func busOf(pci *nvml.PciInfo) string {
	return fmt.Sprintf("%04x:%02x:%02x.0", pci.Domain, pci.Bus, pci.Device)
}

// join counts the NVLinks of a GPU that work: to the GPUs at PCI addresses, and to the switch that joins all of them.
func join(h nvml.Device, t *host.DroppedTopology, at map[string]string) {
	lanes := map[string]int32{}
	for link := range nvml.NVLINK_MAX_LINKS {
		if state, r := h.GetNvLinkState(link); r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if version, r := h.GetNvLinkVersion(link); r == nvml.SUCCESS { // 1.0, 2.0, 2.2, 3.0, 3.1, 4.0, 5.0 and later
			t.LaneBandwidth = []string{"", "20G", "25G", "25G", "25G", "25G", "25G", "50G"}[min(version, 7)]
		}
		if kind, r := h.GetNvLinkRemoteDeviceType(link); r == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
			t.SwitchLanes++
		} else if pci, r := h.GetNvLinkRemotePciInfo(link); r == nvml.SUCCESS && at[busOf(&pci)] != "" {
			lanes[at[busOf(&pci)]]++
		}
	}
	for _, peer := range slices.Sorted(maps.Keys(lanes)) {
		t.P2PLinks = append(t.P2PLinks, host.DroppedLink{PeerUUID: peer, Type: "NVLink", Count: lanes[peer]})
	}
}

// slicesOf describes the MIG devices of a GPU, which cannot be used without one in MIG mode.
func (l *library) slicesOf(h nvml.Device, gpu *host.Dropped) (list []host.Dropped) {
	if mode, _, r := h.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	minor, _ := h.GetMinorNumber()
	n, _ := h.GetMaxMigDeviceCount()
	for i := range n {
		slice, r := h.GetMigDeviceHandleByIndex(i)
		if r != nvml.SUCCESS {
			continue // none has this number
		}
		uuid, r1 := slice.GetUUID()
		name, r2 := slice.GetName() // ends in the profile, as in MIG 1g.10gb
		has, r3 := slice.GetAttributes()
		gi, r4 := slice.GetGpuInstanceId()
		ci, r5 := slice.GetComputeInstanceId()
		if r1 != nvml.SUCCESS || r2 != nvml.SUCCESS || r3 != nvml.SUCCESS || r4 != nvml.SUCCESS || r5 != nvml.SUCCESS {
			continue
		}
		profile := name[strings.LastIndex(name, " ")+1:]
		d := migDevice(gpu, uuid, profile, int(has.GpuInstanceSliceCount), int64(has.MemorySizeMB)<<20)
		list = append(list, withSliceFiles(l.root, d, minor, gi, ci))
	}
	if len(list) == 0 {
		gpu.Status = host.Fails(host.NoMIGDevice, "its MIG mode is on, and it has no MIG device")
	}
	return list
}

// eventWait is how long one call waits for an event, in milliseconds.
const eventWait = 5000

// watch reports events until ctx ends. It returns at once while the library has not been opened.
func (l *library) watch(ctx context.Context, report func(Fault)) error {
	if !l.started.Load() {
		return nil
	}
	set, r := l.EventSetCreate()
	if err := failed("EventSetCreate", r); err != nil {
		return err
	}
	defer set.Free()
	handles, _ := l.handles()         // the next look sees the others
	uuids := map[nvml.Device]string{} // a lost GPU does not say its own any more
	for _, h := range handles {
		uuids[h], _ = h.GetUUID()
		events, _ := h.GetSupportedEventTypes()
		events &= nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
		if r := h.RegisterEvents(events, set); r != nvml.ERROR_NOT_SUPPORTED {
			if err := failed("RegisterEvents", r); err != nil {
				return err
			}
		}
	}
	for ctx.Err() == nil {
		e, r := set.Wait(eventWait)
		if err := failed("EventSetWait", r); err != nil && r != nvml.ERROR_TIMEOUT {
			return err
		} else if f, ok := faultOf(&e); err == nil && ok {
			f.UUID = uuids[e.Device]
			report(f)
		}
	}
	return nil
}

// faultOf is what an event says of its device; false for one that an application causes.
func faultOf(e *nvml.EventData) (f Fault, ok bool) {
	f = Fault{Probe: device.Damages, Status: host.Fails("DoubleBitEcc", "an error of its memory was not corrected")}
	if e.EventType == nvml.EventTypeXidCriticalError {
		f.Status = host.Fails(fmt.Sprint("Xid", e.EventData), "the driver reports a critical error")
		ok = slices.Contains([]uint64{13, 31, 43, 45, 68, 109}, e.EventData)
	}
	return f, !ok
}

//go:build nvml && cgo

package inventory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/testkit"
)

// newServer is a DGX A100 of the library's mock, with what that leaves out: eight GPUs on a switch, without faults.
func newServer() (*dgxa100.Server, []*dgxa100.Device) {
	server := dgxa100.New()
	var gpus []*dgxa100.Device
	for i, d := range server.Devices {
		gpu := d.(*dgxa100.Device)
		gpu.UUID = fmt.Sprint("GPU-", i)
		gpu.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) {
			return nvml.PciInfo{Bus: uint32(0x10 + i)}, nvml.SUCCESS
		}
		gpu.GetModuleIdFunc = func() (int, nvml.Return) { return 7 - i, nvml.SUCCESS }
		gpu.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) {
			return 0, nvml.ERROR_NOT_SUPPORTED
		}
		gpu.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS }
		gpu.GetSramEccErrorStatusFunc = func() (nvml.EccSramErrorStatus, nvml.Return) {
			return nvml.EccSramErrorStatus{AggregateCor: 3}, nvml.SUCCESS
		}
		gpu.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 1, UsedGpuMemory: 1<<64 - 1}}, nvml.SUCCESS
		}
		gpu.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return nil, nvml.ERROR_NOT_SUPPORTED
		}
		gpu.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED}, nvml.SUCCESS // of no rack
		}
		gpu.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			if link >= 12 {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		gpu.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		gpu.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) {
			return nvml.PciInfo{}, nvml.ERROR_NOT_SUPPORTED
		}
		gpu.GetNvLinkVersionFunc = func(int) (uint32, nvml.Return) {
			return uint32(nvml.NVLINK_VERSION_3_0), nvml.SUCCESS
		}
		gpus = append(gpus, gpu)
	}
	return server, gpus
}

func list(t *testing.T, lib nvml.Interface, want int) []host.Dropped {
	t.Helper()
	return listIn(t, lib, host.Root{Dir: t.TempDir()}, want)
}

func listIn(t *testing.T, lib nvml.Interface, root host.Root, want int) []host.Dropped {
	t.Helper()
	devices, err := nvmlDriver(lib, root).Devices()
	if err != nil || len(devices) != want {
		t.Fatalf("got %+v, %v, want %d devices", devices, err, want)
	}
	return devices
}

func TestGPUsOfTheLibrary(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	for i, state := range []uint8{nvml.GPU_FABRIC_STATE_COMPLETED, 2} { // 2: it is being set up
		gpus[3+i].GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{
				ClusterUuid: [16]uint8{0x1b, 15: 0xff}, CliqueId: 32766, State: state,
			}, nvml.SUCCESS
		}
	}
	gpus[3].GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 12, UsedGpuMemory: 3 << 30}}, nvml.SUCCESS
	}
	want := host.Dropped{
		Processes: map[int]int64{12: 3 << 30},
		Type:      "gpu", UUID: "GPU-3", Vendor: "nvidia", Model: "Mock NVIDIA A100-SXM4-40GB",
		Minor: "3", ModuleID: "4",
		Labels: map[string]string{
			"node.koordinator.sh/gpu-driver-version": "550.54.15",
			"nvidia.com/gpu.clique":                  "1b000000-0000-0000-0000-0000000000ff.32766",
		},
		Resources: map[string]string{"gpu-memory": "42949672960"},
		Topology:  host.DroppedTopology{BusID: "0000:13:00.0", SwitchLanes: 12, LaneBandwidth: "25G"},
	}
	found := list(t, server, 8)
	if len(found[4].Labels) != 1 || len(found[5].Labels) != 1 {
		t.Errorf("GPUs of no rack have the labels %v and %v", found[4].Labels, found[5].Labels)
	}
	if diff := cmp.Diff(want, found[3]); diff != "" {
		t.Errorf("GPU (-want +got):\n%s", diff)
	}
}

func TestLinksBetweenGPUs(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	for i, gpu := range gpus[:2] {
		gpu.GetNvLinkRemoteDeviceTypeFunc = func(link int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_GPU, nvml.SUCCESS
		}
		gpu.GetNvLinkRemotePciInfoFunc = func(link int) (nvml.PciInfo, nvml.Return) {
			if link < 4 {
				return nvml.PciInfo{Bus: uint32(0x11 - i)}, nvml.SUCCESS
			}
			return nvml.PciInfo{Bus: 0x99}, nvml.SUCCESS // not a GPU
		}
	}
	devices := list(t, server, 8)
	for i, want := range [][]host.DroppedLink{
		{{PeerUUID: "GPU-1", Type: "NVLink", Count: 4}}, {{PeerUUID: "GPU-0", Type: "NVLink", Count: 4}},
	} {
		if d := devices[i].Topology; !cmp.Equal(d.P2PLinks, want) || d.SwitchLanes != 0 {
			t.Errorf("GPU %d: links %+v and %d lanes to a switch, want %+v, 0", i, d.P2PLinks, d.SwitchLanes, want)
		}
	}
}

func TestMIGDevicesThatExist(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	gpus[1].MigMode = nvml.DEVICE_MIG_ENABLE
	gpus[1].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	instance := 5
	gpus[1].GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i != 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) { return "MIG-a", nvml.SUCCESS },
			GetNameFunc: func() (string, nvml.Return) {
				return "A100-SXM4-40GB MIG 3g.20gb+me", nvml.SUCCESS
			},
			GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return instance, nvml.SUCCESS },
			GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 0, nvml.SUCCESS },
			GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
				return nvml.DeviceAttributes{GpuInstanceSliceCount: 3, MemorySizeMB: 19968}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
	want := host.Dropped{
		Type: "gpu", UUID: "MIG-a", Vendor: "nvidia", Model: "Mock NVIDIA A100-SXM4-40GB",
		Labels: map[string]string{
			"node.koordinator.sh/gpu-driver-version": "550.54.15", "node.tenon.sh/mig-profile": "3g.20gb.me",
			"node.tenon.sh/parent": "GPU-1",
		},
		Resources: map[string]string{"gpu-core": "42", "gpu-memory": "20937965568"},
		Topology:  host.DroppedTopology{BusID: "0000:11:00.0"},
		Files: []host.DeviceFile{
			{Path: "/dev/nvidia-caps/nvidia-cap48", Major: 508, Minor: 48},
			{Path: "/dev/nvidia-caps/nvidia-cap49", Major: 508, Minor: 49},
		},
	}
	root := host.Root{Dir: t.TempDir()}
	for name, text := range map[string]string{
		"proc/devices": "Character devices:\n508 nvidia-caps\n",
		"proc/driver/nvidia/capabilities/gpu1/mig/gi5/access":     "DeviceFileMinor: 48\nDeviceFileMode: 292\n",
		"proc/driver/nvidia/capabilities/gpu1/mig/gi5/ci0/access": "DeviceFileMinor: 49\nDeviceFileMode: 292\n",
	} {
		at := root.Path(name)
		testkit.Check(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)))
	}
	devices := listIn(t, server, root, 9)
	if diff := cmp.Diff(want, devices[8]); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
	instance = 6 // of which the driver has no files
	if d := listIn(t, server, root, 9)[8]; d.Files != nil || d.Status == nil || d.Status.ErrCode != "NoDeviceFile" {
		t.Errorf("a slice without files is %+v", d)
	}
	gpus[1].GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.SUCCESS }
	if d := listIn(t, server, root, 8)[1]; d.Status == nil || d.Status.ErrCode != "NoMIGDevice" {
		t.Errorf("a GPU in MIG mode without a slice is %+v", d)
	}
	if devices[1].Labels["node.tenon.sh/parent"] != "" {
		t.Errorf("the GPU itself has the labels of its slice: %+v", devices[1])
	}
}

// The library of an older driver lacks functions, whose call would end the process.
func TestTheLibraryOfAnOlderDriver(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	server.LookupSymbolFunc = func(name string) error { return errors.New(name + " is missing") }
	for _, gpu := range gpus {
		gpu.GetGpuFabricInfoFunc, gpu.GetSramEccErrorStatusFunc = nil, nil // a call panics
	}
	for _, d := range list(t, server, 8) {
		if len(d.Labels) != 1 || d.Status != nil {
			t.Errorf("%s has the labels %v and the status %+v", d.UUID, d.Labels, d.Status)
		}
	}
}

func TestFaultsOfGPUs(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	gpus[0].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 1, true, false, nvml.SUCCESS }
	gpus[1].GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, true, true, nvml.SUCCESS }
	gpus[2].GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) {
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	gpus[5].GetSramEccErrorStatusFunc = func() (nvml.EccSramErrorStatus, nvml.Return) {
		return nvml.EccSramErrorStatus{BThresholdExceeded: 1}, nvml.SUCCESS
	}
	gpus[3].GetNameFunc = func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN }
	gpus[3].GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_NOT_SUPPORTED }
	gpus[4].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	devices, err := nvmlDriver(server, host.Root{Dir: t.TempDir()}).Devices()
	if want := "GetUUID: NVML error 15"; err == nil || err.Error() != want {
		t.Errorf("err = %v, want %s", err, want)
	}
	got := map[string]string{}
	for _, d := range devices {
		if got[d.UUID] = "works"; d.Status != nil {
			got[d.UUID] = fmt.Sprint(d.Status.ErrCode, " ", d.Status.Healthy)
		}
	}
	want := map[string]string{
		"GPU-0": "ResetNeeded true", "GPU-1": "RowRemapFailure false", "GPU-2": "ResetNeeded true", "GPU-3": "works",
		"GPU-5": "SRAMErrors true", "GPU-6": "works", "GPU-7": "works",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestALibraryThatIsNotThere(t *testing.T) {
	t.Parallel()
	server, _ := newServer()
	r := nvml.ERROR_LIBRARY_NOT_FOUND
	server.InitFunc = func() nvml.Return { return r }
	d := nvmlDriver(server, host.Root{Dir: t.TempDir()})
	if devices, err := d.Devices(); len(devices) > 0 || err != nil {
		t.Errorf("without the library: %+v, %v", devices, err)
	}
	if err := d.Watch(t.Context(), nil); err != nil {
		t.Errorf("events without the library: %v", err)
	}
	r = nvml.ERROR_NO_PERMISSION
	if _, err := d.Devices(); err == nil || err.Error() != "Init: NVML error 4" {
		t.Errorf("err = %v, want that of Init", err)
	}
	r = nvml.SUCCESS
	if devices, err := d.Devices(); len(devices) != 8 || err != nil {
		t.Errorf("once it is there: %d devices, %v", len(devices), err)
	}
	begun := 0
	server.InitFunc = func() nvml.Return { begun++; return nvml.SUCCESS }
	server.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNINITIALIZED }
	if _, err := d.Devices(); err == nil || begun != 0 {
		t.Errorf("when the driver is unloaded: %v", err)
	}
	if _, err := d.Devices(); err == nil || begun != 1 {
		t.Errorf("it is opened anew %d times, %v, want once", begun, err)
	}
}

func TestEventsOfTheLibrary(t *testing.T) {
	t.Parallel()
	server, gpus := newServer()
	asked := map[string]uint64{}
	for _, gpu := range gpus {
		gpu.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) {
			return nvml.EventTypeXidCriticalError | nvml.EventTypeSingleBitEccError | nvml.EventTypeClock, nvml.SUCCESS
		}
		gpu.RegisterEventsFunc = func(events uint64, _ nvml.EventSet) nvml.Return {
			asked[gpu.UUID] = events
			return nvml.SUCCESS
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	xid := func(gpu nvml.Device, n uint64) nvml.EventData {
		return nvml.EventData{Device: gpu, EventType: nvml.EventTypeXidCriticalError, EventData: n}
	}
	events := []nvml.EventData{
		xid(gpus[0], 13), xid(gpus[0], 31), xid(gpus[0], 43), xid(gpus[0], 45), xid(gpus[0], 68), xid(gpus[0], 109),
		xid(gpus[1], 79),
		{Device: gpus[2], EventType: nvml.EventTypeDoubleBitEccError},
		xid(nil, 48),
	}
	freed := false
	server.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		return &mock.EventSet{
			WaitFunc: func(uint32) (nvml.EventData, nvml.Return) {
				gpus[1].GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
				if len(events) == 0 {
					cancel()
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
				e := events[0]
				events = events[1:]
				return e, nvml.SUCCESS
			},
			FreeFunc: func() nvml.Return { freed = true; return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	d := nvmlDriver(server, host.Root{Dir: t.TempDir()})
	if _, err := d.Devices(); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := d.Watch(ctx, func(f Fault) {
		if f.Probe != device.Damages {
			t.Errorf("%+v, want that it damages", f)
		}
		got = append(got, f.UUID+" "+f.Status.ErrCode)
	}); err != nil || !freed {
		t.Errorf("Watch = %v, freed %t", err, freed)
	}
	if diff := cmp.Diff([]string{"GPU-1 Xid79", "GPU-2 DoubleBitEcc", " Xid48"}, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	for uuid, events := range asked {
		if events != nvml.EventTypeXidCriticalError {
			t.Errorf("%s: events %x asked for, want %x", uuid, events, nvml.EventTypeXidCriticalError)
		}
	}
	if len(asked) != 8 {
		t.Errorf("%d GPUs are asked for events, want 8", len(asked))
	}
}

//go:build !k133 && !k134 && !k135 && !k136

package main

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	cadvisorapi "github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// minor is the kubelet that this program holds. The rest of this file is what changed its form between minors.
const minor = "1.37"

var quiet = logr.Discard()

// What cAdvisor reports of a machine.
type (
	machineReport = cadvisorapi.MachineInfo
	nodeReport    = cadvisorapi.Node
	pagesReport   = cadvisorapi.HugePagesInfo
	coreReport    = cadvisorapi.Core
	cacheReport   = cadvisorapi.Cache
)

func newTopologyManager(m *machine, info *machineReport) (topologymanager.Manager, error) {
	return topologymanager.NewManager(quiet, info.Topology, m.TopologyPolicy, m.TopologyScope, m.TopologyOptions)
}

func newDeviceManager(info *machineReport, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(quiet, info.Topology, store)
}

func newCPUManager(m *machine, info *machineReport, reserved cpuset.CPUSet, reservation v1.ResourceList,
	dir string, store topologymanager.Store,
) (cpumanager.Manager, error) {
	return cpumanager.NewManager(quiet, m.CPUPolicy, m.CPUOptions, time.Hour, info, reserved, reservation, dir, store)
}

func newMemoryManager(m *machine, info *machineReport, reservation v1.ResourceList,
	perNode []kubeletconfig.MemoryReservation, dir string, store topologymanager.Store,
) (memorymanager.Manager, error) {
	return memorymanager.NewManager(quiet, m.MemoryPolicy, info, reservation, perNode, dir, store)
}

func addProvider(t topologymanager.Manager, p topologymanager.HintProvider) {
	t.AddHintProvider(quiet, p)
}

func startCPU(m cpumanager.Manager, pods func() []*v1.Pod, containers containermap.ContainerMap) error {
	return m.Start(context.Background(), pods, ready{}, statuses{}, noRuntime{}, containers)
}

func startMemory(m memorymanager.Manager, pods func() []*v1.Pod, containers containermap.ContainerMap) error {
	return m.Start(context.Background(), pods, ready{}, statuses{}, noRuntime{}, containers)
}

func startDevices(m *devicemanager.ManagerImpl, pods func() []*v1.Pod) error {
	return m.Start(quiet, pods, ready{}, containermap.NewContainerMap(), nil)
}

func stopDevices(m *devicemanager.ManagerImpl) { _ = m.Stop(quiet) }

func connect(m *devicemanager.ManagerImpl, name string, p *devicePlugin) error {
	return m.PluginConnected(context.Background(), name, p)
}

func listed(m *devicemanager.ManagerImpl, name string, r *pluginapi.ListAndWatchResponse) {
	m.PluginListAndWatchReceiver(quiet, name, r)
}

func remove(c cpumanager.Manager, m memorymanager.Manager, id string) {
	_ = c.RemoveContainer(quiet, id)
	_ = m.RemoveContainer(quiet, id)
}

func blocksOf(m memorymanager.Manager, uid, name string) []state.Block {
	return m.GetMemory(quiet, uid, name)
}

func admitTo(t topologymanager.Manager, p *v1.Pod) lifecycle.PodAdmitResult {
	return t.Admit(context.Background(), &lifecycle.PodAdmitAttributes{Pod: p, Operation: lifecycle.AddOperation})
}

func affinityOf(t topologymanager.Manager, uid, name string) topologymanager.TopologyHint {
	return t.GetAffinity(quiet, uid, name)
}

func releaseDevices(m *devicemanager.ManagerImpl) { m.UpdateAllocatedDevices(quiet) }

func (w *watched) GetTopologyHints(log logr.Logger, p *v1.Pod, c *v1.Container,
	o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	w.asks(c.Name)
	return w.seen(w.HintProvider.GetTopologyHints(log, p, c, o))
}

func (w *watched) GetPodTopologyHints(log logr.Logger, p *v1.Pod,
	o lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return w.seen(w.HintProvider.GetPodTopologyHints(log, p, o))
}

func (w *watched) Allocate(ctx context.Context, p *v1.Pod, c *v1.Container, o lifecycle.Operation) error {
	w.allocates(c.Name)
	return w.HintProvider.Allocate(ctx, p, c, o)
}

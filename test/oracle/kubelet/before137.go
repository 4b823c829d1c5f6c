//go:build k133 || k134 || k135 || k136

package main

import (
	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// What cAdvisor reports of a machine. This file is what changed its form with 1.37.
type (
	machineReport = cadvisorapi.MachineInfo
	nodeReport    = cadvisorapi.Node
	pagesReport   = cadvisorapi.HugePagesInfo
	coreReport    = cadvisorapi.Core
	cacheReport   = cadvisorapi.Cache
)

func newTopologyManager(m *machine, info *machineReport) (topologymanager.Manager, error) {
	return topologymanager.NewManager(info.Topology, m.TopologyPolicy, m.TopologyScope, m.TopologyOptions)
}

func newDeviceManager(info *machineReport, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(info.Topology, store)
}

func admitTo(t topologymanager.Manager, p *v1.Pod) lifecycle.PodAdmitResult {
	return t.Admit(&lifecycle.PodAdmitAttributes{Pod: p})
}

func affinityOf(t topologymanager.Manager, uid, name string) topologymanager.TopologyHint {
	return t.GetAffinity(uid, name)
}

func releaseDevices(m *devicemanager.ManagerImpl) { m.UpdateAllocatedDevices() }

func (w *watched) GetTopologyHints(p *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	w.asks(c.Name)
	return w.seen(w.HintProvider.GetTopologyHints(p, c))
}

func (w *watched) GetPodTopologyHints(p *v1.Pod) map[string][]topologymanager.TopologyHint {
	return w.seen(w.HintProvider.GetPodTopologyHints(p))
}

func (w *watched) Allocate(p *v1.Pod, c *v1.Container) error {
	w.allocates(c.Name)
	return w.HintProvider.Allocate(p, c)
}

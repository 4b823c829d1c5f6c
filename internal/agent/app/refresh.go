package app

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/hook"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// refresh reads the machine and the kubelet's state, and gives the engine the facts that follow. Errors are reported as
// conditions and logged; the last known state is kept.
func (a *Agent) refresh(ctx context.Context) {
	log := klog.LoggerWithValues(klog.FromContext(ctx), "node", a.o.Node)
	failed := func(err error, message string) {
		if err != nil {
			log.Error(err, message)
		}
	}
	failed(a.readMachine(ctx), "Cannot use the machine's files, the last good topology counts")
	a.readDevices(ctx)
	failed(a.saveNode(), "The next agent cannot begin without the API server")
	mode := a.Mode()
	changed := a.kubelet.Refresh(ctx)
	if names := exhausted(a.CurrentNode(), a.kubelet.HasLost); !slices.Equal(names, a.last.exhausted) {
		a.last.exhausted = names
		a.wakeDevices()
	}
	state := a.kubelet.State()
	if changed {
		a.enforcer.KubeletKeepsMemory(state.KeepsMemory())
		a.requestPublish()
	}
	if state.Mode != mode {
		a.enforcer.Changed()
	}
	var assigned map[string][]int
	if state.Mode == annotation.ModeOwn && state.IsStatic() {
		assigned = state.Records.CPU.Pods
	}
	failed(a.status.Overlap(ctx, a.enforcer.View(), assigned, a.livePods()),
		"Cannot report whether the kubelet's CPUs are exclusive to others")
	failed(a.compareHolders(ctx), "Cannot report who holds the node's devices")
	failed(a.reportIsolation(ctx), "Cannot report how GPUs are isolated")
	failed(a.transports.Report(ctx, a.Writes()), "Cannot report whether containers may start without the agent")
	pods := a.Pods()
	in := a.input(pods)
	facts := in.Draft.Facts
	facts.Given = desired.NodeGrants(facts.Given, pods)
	a.facts.mu.Lock()
	same := reflect.DeepEqual(a.facts.given, facts)
	a.facts.given = facts
	a.facts.mu.Unlock()
	if same {
		return
	}
	for _, p := range in.Draft.Problems {
		log.Info("Part of the node's configuration cannot be used", "problem", p.String())
	}
	a.enforcer.SetFacts(facts)
	a.requestPublish()
}

// readMachine takes the machine anew when CPUs or NUMA nodes have come or gone. Files that contradict themselves leave
// the last good machine in force.
func (a *Agent) readMachine(ctx context.Context) error {
	old := a.Machine()
	err := a.machine.Refresh(ctx, func(last reading) (reading, error) {
		presence, err := host.Presence(a.o.Root)
		if err != nil || presence == last.presence {
			return last, err
		}
		found, err := host.Read(a.o.Root, a.o.Arch)
		if err != nil {
			return last, err
		}
		quiet, err := host.Quiet(a.o.Root, found.Machine)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What disturbs CPUs cannot be read in full", "node", a.o.Node)
		}
		return reading{a.o.Shared.intern(found.Machine), &quiet, presence}, nil
	})
	if now := a.Machine(); !now.Equal(old) {
		a.o.Shared.Metrics.MachineChanges.Inc()
		a.status.Event(event.TopologyChanged,
			"the machine has %s on %s, it had %s on %d: what pods hold of CPUs that are gone is left out",
			view.CPUs(now.FormatList(now.Online())), view.Count(now.NumNUMA(), "NUMA node"),
			old.FormatList(old.Online()), old.NumNUMA())
		a.requestPublish()
	}
	return err
}

// input gathers what is published of this moment, but for what the pods hold.
func (a *Agent) input(pods []*convert.Pod) probe.Input {
	state := a.kubelet.State()
	in := probe.Input{
		NodeName: a.o.Node, Node: a.CurrentNode(), Machine: a.Machine(), Quiet: a.machine.Value().quiet,
		Kubelet: state.Settings, Mode: state.Mode,
		Writer: "tenon-agent/" + a.o.Version, Since: state.Since, Pods: pods, State: state.Records,
		Pins: state.Pins(pods),
	}
	a.facts.mu.Lock()
	in.Draft = a.facts.draft
	a.facts.mu.Unlock()
	if !in.Draft.IsOf(in) {
		in.Draft = probe.NewDraft(in, a.o.Shared.facts)
		a.facts.mu.Lock()
		a.facts.draft = in.Draft
		a.facts.mu.Unlock()
	}
	return in
}

// readDevices looks at the node's devices, and publishes what has changed.
func (a *Agent) readDevices(ctx context.Context) {
	changed, err := a.found.Refresh(ctx)
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	a.facts.mu.Lock()
	news := fault != a.facts.deviceFault
	a.facts.deviceFault = fault
	a.facts.mu.Unlock()
	if news && err != nil {
		klog.FromContext(ctx).Error(err, "Part of the node's devices cannot be read", "node", a.o.Node)
	}
	if changed {
		a.requestPublish()
	}
	a.compareMemory()
}

// reportIsolation keeps the condition GPUIsolationWeak.
func (a *Agent) reportIsolation(ctx context.Context) error {
	node, gpus, hasShares := a.CurrentNode(), 0, false
	if node == nil {
		return nil
	}
	found := a.found.Devices(nil)
	for i := range found {
		if d := &found[i]; d.Type == annotation.DeviceGPU && !d.IsLost {
			gpus++
			isSliced := slices.ContainsFunc(found, func(o host.Dropped) bool {
				return o.Labels[annotation.MIGParentLabel] == d.UUID
			})
			hasShares = hasShares || !isSliced && d.Labels[annotation.MIGParentLabel] == ""
		}
	}
	mode := a.injects.Load().Mode
	if gpus == 0 || mode != annotation.DeviceOwn && mode != annotation.DeviceMoving {
		return a.status.Set(ctx, event.GPUIsolationWeak, false, "NoShares", "Tenon allocates no shares of GPUs here")
	}
	reason, says := "None", "nothing keeps pods to their parts of GPUs"
	provider := node.Labels[annotation.GPUIsolationLabel]
	strength := device.StrengthOfNode(hasShares, provider)
	switch strength {
	case device.Hard:
		reason, says = "Hard", "the hardware isolates the memory and compute of MIG devices"
	case device.Cooperative:
		reason, says = "Cooperative", provider+" limits programs that use it, in pods with its label, and no others"
	}
	return a.status.Set(ctx, event.GPUIsolationWeak, strength != device.Hard, reason, says)
}

// gpuUse is a pod, by its UID on the node, and a GPU.
type gpuUse struct{ pod, gpu string }

// overuseLasts is how long a pod may use more of a GPU's memory than it was allocated, until it may be evicted.
const overuseLasts = time.Minute

// compareMemory reports pods whose processes use more memory of a GPU than was allocated to them, each once until it is
// over.
func (a *Agent) compareMemory() {
	pods, used := a.Pods(), map[gpuUse]int64{}
	for gpu, processes := range a.found.Processes() {
		for pid, bytes := range processes {
			group, err := os.ReadFile(a.o.Root.Path("proc", strconv.Itoa(pid), "cgroup"))
			if err != nil {
				continue // it has ended
			}
			name := strings.ReplaceAll(string(group), "_", "-") // as systemd's names have no dashes
			for _, pod := range pods {
				if uid := convert.NodeUID(pod.Pod); strings.Contains(name, "pod"+uid) {
					used[gpuUse{uid, gpu}] += bytes
				}
			}
		}
	}
	exceeded, now := map[gpuUse]time.Time{}, a.o.Clock.Now()
	var lasting []besteffort.Overuse
	for _, pod := range pods {
		for i := range pod.Entry.Devices {
			g := &pod.Entry.Devices[i]
			use, allocated := gpuUse{convert.NodeUID(pod.Pod), g.ID}, g.Amount[device.Bytes]
			if allocated == 0 || used[use] <= allocated {
				continue
			}
			since, isKnown := a.last.exceeded[use]
			if !isKnown {
				since = now
				a.status.MemoryExceeded(pod.Pod, g.ID, used[use], allocated)
			}
			if exceeded[use] = since; now.Sub(since) >= overuseLasts {
				lasting = append(lasting, besteffort.Overuse{
					Device: g.ID, Pod: pod.Pod, Used: used[use], Allocated: allocated,
				})
			}
		}
	}
	a.last.exceeded = exceeded
	if a.o.EvictDeviceOveruse && len(lasting) > 0 && !a.leaving.Load() {
		a.evictor.EvictOverusers(now, lasting)
	}
}

// deviceObject returns the node's Device object.
func (a *Agent) deviceObject(in probe.Input, published *devicev1alpha1.Device) *devicev1alpha1.Device {
	found := a.found.Devices(published)
	object, err := probe.Device(in, found, published, metav1.NewTime(a.o.Clock.Now()))
	if err != nil {
		klog.Background().Error(err, "Facts about devices are left out", "node", a.o.Node)
	}
	var list []devicev1alpha1.DeviceInfo
	if object != nil {
		a.addHolders(object, published)
		list = object.Spec.Devices
	}
	a.showDevices(list)
	return object
}

// showDevices makes the metrics say what a list of devices does.
func (a *Agent) showDevices(devices []devicev1alpha1.DeviceInfo) {
	a.facts.mu.Lock()
	before := a.facts.shown
	a.facts.shown = devices
	a.facts.mu.Unlock()
	a.o.Shared.Metrics.ShowDevices(a.o.Node, before, devices)
}

// isWired reports whether the API's objects are followed, and published.
func (a *Agent) isWired() bool {
	select {
	case <-a.wired:
		return true
	default:
		return false
	}
}

// Pods returns the pods by namespace and name; none before the API has answered.
func (a *Agent) Pods() []*convert.Pod {
	if !a.isWired() {
		return nil
	}
	var pods []*convert.Pod
	for _, key := range slices.Sorted(slices.Values(a.pods.GetStore().ListKeys())) {
		if obj, ok, err := a.pods.GetStore().GetByKey(key); ok && err == nil {
			pods = append(pods, obj.(*convert.Pod))
		}
	}
	return pods
}

// Trust returns what the API says of the scheduler of a pod that a runtime reports.
func (a *Agent) Trust(p *hook.Pod) hook.Trust {
	if a.o.Schedulers == nil || !a.isWired() || !a.pods.HasSynced() {
		return hook.Trusted
	}
	obj, ok, err := a.pods.GetStore().GetByKey(p.Namespace + "/" + p.Name)
	switch {
	case !ok || err != nil || convert.NodeUID(obj.(*convert.Pod).Pod) != p.UID:
		return hook.Unknown
	case a.o.Schedulers.Trusts(obj.(*convert.Pod).Pod):
		return hook.Trusted
	}
	return hook.Untrusted
}

func (a *Agent) requestPublish() {
	if a.isWired() {
		a.publisher.Changed()
	}
}

// fullInput returns input with what the pods hold. While the Node is left, it has no Node: nothing is published then.
func (a *Agent) fullInput() probe.Input {
	pods := a.Pods()
	in := a.input(pods)
	if a.leaving.Load() {
		in.Node = nil
	}
	for _, pod := range pods {
		if pod.Concerns {
			in.Entries = append(in.Entries, pod.Entry)
		}
	}
	in.Batch = a.batchByNUMA(&in)
	return in
}

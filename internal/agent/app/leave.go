package app

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// setLeaving follows the annotation of the Node. From here on no container is held back, until the Node comes back.
func (a *Agent) setLeaving(leaving bool) {
	if !leaving {
		a.enforcer.ReturnGroups(nil)
	}
	if a.leaving.Swap(leaving) != leaving {
		a.departed.Store(false)
		a.status.Forget() // others remove conditions of a Node that is left
		a.enforcer.Changed()
	}
}

// leave gives the node's groups back while it is to be left, and reports how far that is; false when it has to be tried
// again. Groups that were given back are others' from then on.
func (a *Agent) leave(ctx context.Context) bool {
	log := klog.LoggerWithValues(klog.FromContext(ctx), "node", a.o.Node)
	set := func(holds bool, reason, text string) bool {
		err := a.status.Set(ctx, event.NodeLeft, holds, reason, text)
		if err != nil {
			log.Error(err, "Cannot report that the node is left")
		}
		return err == nil
	}
	if !a.leaving.Load() {
		return set(false, "InUse", "the agent keeps the node")
	}
	if !a.departed.Load() {
		if a.o.Switches.Writes(a.Mode()) {
			a.enforcer.ReturnGroups(a.kubeletOf())
			if err := a.enforcer.Verify(); err != nil {
				set(true, "CgroupsRemain", err.Error())
				return false
			}
		}
		log.Info("Gave the node's cgroups back to the kubelet")
		a.departed.Store(true)
	}
	held, bound := a.heldBy()
	if held != "" {
		return set(true, "AgentNeeded", held)
	}
	return set(true, event.Left, "cgroups are the kubelet's, and all containers start without the agent"+bound)
}

// kubeletOf is what the kubelet does with groups when Tenon does nothing.
func (a *Agent) kubeletOf() *desired.Kubelet {
	k := &desired.Kubelet{Unlimited: a.kubelet.SetsNoQuotas()}
	state := a.kubelet.State()
	if state.IsStatic() {
		k.CPUs = state.Records.CPU.Of
	}
	return k
}

// injected is what answers about containers' devices depend on. Pods with an allocation go on to get it while the node
// is left, and no other container is refused one.
func (a *Agent) injected() *inject.Node {
	n := a.injects.Load()
	if !a.leaving.Load() || n.Mode != annotation.DeviceOwn {
		return n
	}
	left := *n
	left.Mode = annotation.DeviceMoving
	return &left
}

// heldBy says why containers of the node need the agent when they start again; "" when none does. bound names the pods
// that had CPUs of their own.
func (a *Agent) heldBy() (held, bound string) {
	named, proxied := a.transports.Needed()
	if proxied {
		held = "; the runtime proxy asks it: run tenon-runtime-proxy uninstall on the node, and restart the kubelet"
	}
	pods := func(format string, are func(*convert.Pod) bool) string {
		var names []string
		for _, p := range a.podList() {
			if !convert.Ended(p.Pod) && are(p) {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return fmt.Sprintf(format, strings.Join(names, ", "))
	}
	held += pods("; the runtime's NRI validator refuses containers of %s without it: make these pods anew, or switch "+
		"the validator off, which shows at the next container that the runtime creates",
		func(p *convert.Pod) bool { return named && convert.IsFenced(p.Annotations) })
	held += pods("; containers of %s get their devices from it: make these pods anew",
		func(p *convert.Pod) bool { return len(p.Entry.Devices) > 0 })
	return strings.TrimPrefix(held, "; "), pods("; not on CPUs of their own any more: %s",
		func(p *convert.Pod) bool { return p.Entry.CPUList != "" })
}

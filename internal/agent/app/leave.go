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

// setLeaving follows the annotation of the Node by which it is left. While the Node is left no container is blocked.
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

// leaveNode returns the node's groups to the kubelet while the Node is to be left, and reports the progress on the
// Node; false when it has to be tried again. Groups are returned once: later they may be other programs'.
func (a *Agent) leaveNode(ctx context.Context) bool {
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
			a.enforcer.ReturnGroups(a.kubeletValues())
			if err := a.enforcer.Verify(); err != nil {
				set(true, "CgroupsRemain", err.Error())
				return false
			}
		}
		if rest := a.tuner.Restore(); len(rest) > 0 {
			set(true, "SettingsRemain", "not restored yet: "+strings.Join(rest, ", "))
			return false
		}
		log.Info("Gave the node's cgroups back to the kubelet")
		a.departed.Store(true)
	}
	held, bound := a.whyNeeded()
	if held != "" {
		return set(true, "AgentNeeded", held)
	}
	return set(true, event.Left, "cgroups are the kubelet's, and all containers start without the agent"+bound)
}

// kubeletValues returns the values that the kubelet alone gives to groups.
func (a *Agent) kubeletValues() *desired.Kubelet {
	k := &desired.Kubelet{Unlimited: a.kubelet.SetsNoQuotas()}
	state := a.kubelet.State()
	if state.IsStatic() {
		k.CPUs = state.Records.CPU.Of
	}
	return k
}

// Devices returns what answers about containers' devices depend on. While the node is left, pods with an
// allocation still get it, and other containers get what they ask for.
func (a *Agent) Devices() *inject.Node {
	n := a.injects.Load()
	if !a.leaving.Load() || n.Mode != annotation.DeviceOwn {
		return n
	}
	left := *n
	left.Mode = annotation.DeviceMoving
	return &left
}

// whyNeeded returns why containers of the node need the agent when they start again; "" if none does. bound names the
// pods that had CPUs of their own.
func (a *Agent) whyNeeded() (held, bound string) {
	named, proxied := a.transports.Needed()
	if proxied {
		held = "; the runtime proxy asks it: run tenon-runtime-proxy uninstall on the node, and restart the kubelet"
	}
	pods := func(format string, are func(*convert.Pod) bool) string {
		var names []string
		for _, p := range a.Pods() {
			if !convert.Ended(p.Pod) && are(p) {
				names = append(names, p.Namespace+"/"+p.Name)
			}
		}
		if len(names) == 0 {
			return ""
		}
		return fmt.Sprintf(format, strings.Join(names, ", "))
	}
	held += pods("; the runtime's NRI validator refuses containers of %s without it: recreate these pods, or switch "+
		"the validator off, which shows at the next container that the runtime creates",
		func(p *convert.Pod) bool { return named && convert.IsFenced(p.Annotations) })
	held += pods("; containers of %s get their devices from it: recreate these pods",
		func(p *convert.Pod) bool { return len(p.Entry.Devices) > 0 })
	return strings.TrimPrefix(held, "; "), pods("; no longer on exclusive CPUs: %s",
		func(p *convert.Pod) bool { return p.Entry.CPUList != "" })
}

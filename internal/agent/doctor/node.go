package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// NodeView is what the API says of a node.
type NodeView convert.NodeObjects

// Node checks a node by what the API says of it.
func Node(v NodeView) []Finding {
	var all findings
	all.add("node-ready", v.ready())
	all.add("runtime-version", v.runtime())
	if !annotation.IsLeaving(v.Node.Annotations) { // nothing is due from a node that is left
		all.add("topology", v.topology())
		all.add("mode", v.mode())
		all.add("isolation", v.isolation()...)
	}
	all.add("devices", v.devices())
	all.add("claims", v.claims()...)
	all.add("agent", v.agent())
	all.add("traces", v.traces())
	all.add("condition", v.conditions()...)
	return all
}

// traces reports what is written in a Node that has no agent any more, and the agent's reports about it.
func (v *NodeView) traces() Finding {
	_, names := convert.Clean(v.Node, func(string) bool { return false })
	ours := func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "tenon-agent" }
	if v.Topology != nil && slices.ContainsFunc(v.Topology.ManagedFields, ours) {
		names = append(names, "its NodeResourceTopology")
	}
	if v.Device != nil && slices.ContainsFunc(v.Device.ManagedFields, ours) {
		names = append(names, "its Device")
	}
	if v.Agent != nil || v.AgentUnknown != nil || len(names) == 0 {
		return Finding{}
	}
	return ok("Node "+v.Node.Name, "%s", strings.Join(names, ", ")).Because(Warn,
		"no pod of an agent runs here that keeps it true", "once Tenon is uninstalled: tenon leave --node "+v.Node.Name)
}

func (v *NodeView) ready() Finding {
	const field = "status.conditions[Ready]"
	for _, c := range v.Node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return ok(field, "kubelet %s", v.Node.Status.NodeInfo.KubeletVersion)
		}
		return ok(field, "%s: %s", c.Reason, c.Message).Because(Fail, "no pod starts here",
			"see the kubelet's log on the node: journalctl -u kubelet")
	}
	return unknown(field, "the kubelet has said nothing yet")
}

func (v *NodeView) runtime() Finding {
	const field = "status.nodeInfo.containerRuntimeVersion"
	text := v.Node.Status.NodeInfo.ContainerRuntimeVersion
	name, version, found := strings.Cut(text, "://")
	if !found {
		return unknown(field, "%q", text)
	}
	if name == simulated {
		return ok(field, "%s: a simulated node", text)
	}
	return versionFinding(field, name, version)
}

// simulated is the runtime of the nodes of a local cluster.
const simulated = "tenon"

// staleAfter is the age from which a topology may be stale. The agent writes it only on change, so an old one may be
// correct while the agent's pod runs.
const staleAfter = 24 * time.Hour

// enableAgent is the command that runs the agent on the nodes.
const enableAgent = "helm upgrade tenon deploy/chart -n tenon-system --reuse-values --set agent.enabled=true"

func (v *NodeView) topology() Finding {
	const where = "noderesourcetopologies.topology.node.k8s.io"
	if v.Topology == nil {
		return ok(where, "none").Because(Fail,
			"the scheduler does not know the node's CPUs: pods with exclusive CPUs are never placed here",
			"run the agent on the node: "+enableAgent)
	}
	age := v.Now.Sub(v.Written)
	f := ok(where, "%s, written %s ago by %s", view.Count(len(v.Topology.Zones), "zone"), age.Round(time.Second),
		v.Topology.Annotations[annotation.Writer])
	if age > staleAfter && v.Agent == nil && v.AgentUnknown == nil {
		return f.Because(Warn, "no agent updates it: the scheduler may use stale data",
			"run the agent on the node: "+enableAgent)
	}
	return f
}

func (v *NodeView) mode() Finding {
	const key = annotation.TopologyMode
	if v.Topology == nil {
		return unknown(key, "no agent has reported it")
	}
	mode := v.Topology.Annotations[key]
	f := ok(key, "%s", mode)
	switch mode {
	case "":
		return unknown(key, "the topology does not say it: another program wrote it")
	case "Blind":
		return f.Because(Warn, "take-over phase 1: the agent publishes the topology and enforces nothing",
			"start the agent without --disable-query-kubelet-config when you are ready for phase 2")
	}
	if text := v.Topology.Annotations[annotation.TakeoverKey]; text != "" {
		t, _, err := annotation.ParseTakeover(text)
		if err == nil && t.RemainingPods > 0 {
			f.Found += ", take-over since " + t.Since.Format(time.RFC3339)
			return f.Because(Warn, "pods that the kubelet pinned keep their CPUs until they end",
				"restart those pods when it suits you")
		}
	}
	return f
}

// isolation reports what the node lacks to keep CPUs undisturbed, as its agent saw it.
func (v *NodeView) isolation() []Finding {
	if v.Topology == nil {
		return nil
	}
	facts, _ := convert.Facts(v.Node, v.Topology, convert.DefaultArgs())
	q, _, err := annotation.ParseIsolatedCPUs(cmp.Or(v.Topology.Annotations[annotation.IsolatedCPUsKey], "{}"))
	if facts.Machine == nil || err != nil {
		return nil
	}
	quiet := convert.Quiet(facts.Machine, &q)
	return isolation(annotation.IsolatedCPUsKey, facts.Machine, &quiet)
}

func (v *NodeView) devices() Finding {
	const where = "devices.scheduling.koordinator.sh"
	if v.Device == nil {
		for name, amount := range v.Node.Status.Capacity {
			if device.IsWholeGPU(string(name)) && !amount.IsZero() {
				return ok(where, "none: the kubelet allocates %s %s", amount.String(), name)
			}
		}
		return Finding{}
	}
	var bad []string
	for i := range v.Device.Spec.Devices {
		if d := &v.Device.Spec.Devices[i]; !d.Health {
			text := d.Type + " " + d.ID
			if c := meta.FindStatusCondition(d.Conditions, "Healthy"); c != nil {
				text += " (" + c.Reason + ")"
			}
			bad = append(bad, text)
		}
	}
	mode := v.Device.Annotations[annotation.DeviceModeKey]
	f := ok(where, "%s, mode %s", view.Count(len(v.Device.Spec.Devices), "device"), cmp.Or(mode, "not set"))
	_, _, err := annotation.ParseDeviceMode(mode)
	switch {
	case err != nil || mode == "":
		return f.Because(Fail, "no pod gets any of them",
			"set the annotation "+annotation.DeviceModeKey+" of the Device to Own or Follow")
	case len(bad) > 0:
		f.Found += ", not healthy: " + strings.Join(bad, ", ")
		return f.Because(Warn, "no new pod gets them; pods that hold them continue to run",
			"see the driver's log on the node, and tenon-agent doctor there")
	case mode == annotation.DeviceFollow:
		return f.Because(Warn, "the kubelet chooses whole GPUs, and shares are refused",
			"set the mode to Own when no pod holds a GPU of the device plugin")
	}
	return f
}

func (v *NodeView) agent() Finding {
	const where = "pods of namespace tenon-system"
	switch {
	case v.AgentUnknown != nil:
		return unknown(where, "cannot be looked for: %v", v.AgentUnknown)
	case v.Agent == nil:
		return ok(where, "no pod of tenon-agent on this node").Because(Warn,
			"nothing is enforced here, unless the agent runs as a service of the host", enableAgent)
	}
	for _, c := range v.Agent.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ok(v.Agent.Name, "ready")
		}
	}
	return ok(v.Agent.Name, "not ready").Because(Fail, "pods with exclusive CPUs do not start while it is down",
		"kubectl -n tenon-system logs "+v.Agent.Name)
}

// conditions reports every condition of Tenon that is true: each one is a problem, unless its Event is Normal.
func (v *NodeView) conditions() []Finding {
	var out []Finding
	for _, c := range v.Node.Status.Conditions {
		kind, ours := strings.CutPrefix(string(c.Type), convert.ConditionPrefix)
		if !ours || c.Status != corev1.ConditionTrue {
			continue
		}
		f := ok(string(c.Type), "%s: %s", c.Reason, c.Message).Because(Warn, "a newer agent reports it",
			"see "+kind+" in docs/reference/events.md of its version")
		if reason, known := event.Parse(kind); known {
			level := Warn
			if reason.Entry().Normal {
				level = OK
			}
			f = f.Because(level, reason.Entry().Does, reason.Entry().Do)
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, ok("status.conditions", "none of Tenon's holds"))
	}
	return out
}

package refusals

import (
	"cmp"
	"errors"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tenon-project/tenon/internal/core/why"
)

// Refusal is implemented by the error inside a status of one of our own plugins.
type Refusal interface {
	error
	Finding() why.Finding
}

// Beside is the error of a status that refuses a pod beside members of its gang which an attempt has placed on the
// node. They may be gone from the node when the refusal is read.
type Beside struct {
	*fwk.Status          // of the plugin
	Members     []string // namespace/name
}

// Error returns what the plugin says.
func (b *Beside) Error() string { return b.Message() }

// codes has the code for each refusal of an upstream plugin, by the plugin's name. NodeResourcesFit is not in it,
// because its text names the resource. Plugins that are not listed get why.UpstreamFilter.
var codes = map[string]why.Code{
	names.NodeAffinity:       why.NodeAffinity,
	names.NodeName:           why.NodeName,
	names.NodeUnschedulable:  why.NodeUnschedulable,
	names.TaintToleration:    why.TaintToleration,
	names.NodePorts:          why.NodePorts,
	names.InterPodAffinity:   why.PodAffinity,
	names.PodTopologySpread:  why.PodTopologySpread,
	"TenonPodTopologySpread": why.PodTopologySpread, // upstream's, under the name that our profile gives it
	"Coscheduling":           why.GangSiblingFailed, // a reservation that was given back; its Waiting says why
	names.VolumeBinding:      why.Volume,
	names.VolumeZone:         why.Volume,
	names.VolumeRestrictions: why.Volume,
	names.NodeVolumeLimits:   why.Volume,
	names.DefaultPreemption:  why.NoVictims,
	names.SchedulingGates:    why.SchedulingGate,
}

// Findings reads a plugin's refusal of a pod, with amounts where there is a node; nil means that the pod was refused as
// such. plugin is the name for a status that carries none.
func Findings(pod *corev1.Pod, node fwk.NodeInfo, phase why.Phase, status *fwk.Status, plugin string) []why.Finding {
	return (&refusedPod{Pod: pod}).findings(nil, node, phase, status, plugin)
}

// refusedPod is a pod that nodes refuse. What it asks for is read once.
type refusedPod struct {
	*corev1.Pod
	// It is computed when the first amount is needed.
	asked corev1.ResourceList // nil before
	// thorough are the plugins that are asked for all their refusals of a node; nil if the first one is enough.
	thorough []thorough
	// heard has by plugin those that a node is not asked by once that one has refused it.
	heard map[string]sets.Set[string]
}

// WordsOnly reports whether a status has no error besides its reasons, which a status of our plugins has.
func WordsOnly(s *fwk.Status) bool { return reflect.TypeOf(s.AsError()) == wordsOnly }

// wordsOnly is the type of the error that a status makes of its reasons.
var wordsOnly = reflect.TypeOf(errors.New(""))

// findings appends Findings of this pod. A status of one of our plugins carries its reason; the texts of any other
// become one finding each.
func (p *refusedPod) findings(out []why.Finding, node fwk.NodeInfo, phase why.Phase, status *fwk.Status, plugin string,
) []why.Finding {
	if status.IsSuccess() || status.IsSkip() || status.IsWait() {
		return out
	}
	blank := why.Finding{Plugin: cmp.Or(status.Plugin(), plugin), Phase: phase}
	if node != nil && node.Node() != nil {
		blank.Object = node.Node().Name
	}
	var beside *Beside
	if !WordsOnly(status) {
		var own Refusal
		if errors.As(status.AsError(), &own) {
			f, said := blank, own.Finding()
			f.Reason, f.Detail, f.Plugin = said.Reason, said.Detail, cmp.Or(said.Plugin, f.Plugin)
			return append(out, f)
		}
		if errors.As(status.AsError(), &beside) {
			status = beside.Status
		}
	}
	for _, text := range status.Reasons() {
		f := blank
		if f.Reason = p.upstream(node, f.Plugin, text); f.Code.Entry().Upstream {
			f.Detail = text
		}
		if beside != nil && f.Code.Entry().Amount && f.Asked == 0 {
			if f.Detail != "" {
				f.Detail += ": "
			}
			f.Detail += "free on the node, but the gang's other members take it: " + strings.Join(beside.Members, ", ")
		}
		if node != nil && node.Node() != nil {
			about, cordon := subject(p.Pod, node, f.Plugin)
			if cordon {
				continue
			}
			if about != "" {
				f.Detail += ": " + about
			}
		}
		out = append(out, f)
	}
	return out
}

// upstream returns the reason for a text of an upstream plugin. node is nil for a refusal of the pod as such.
func (p *refusedPod) upstream(node fwk.NodeInfo, plugin, text string) why.Reason {
	if plugin == names.NodeResourcesFit && node != nil {
		return p.shortage(node, text)
	}
	if code, known := codes[plugin]; known {
		return why.Reason{Code: code}
	}
	return why.Reason{Code: why.UpstreamFilter}
}

// shortage adds have and need to a text of NodeResourcesFit, which names the resource alone.
func (p *refusedPod) shortage(node fwk.NodeInfo, text string) why.Reason {
	have, used := node.GetAllocatable(), node.GetRequested()
	if text == "Too many pods" {
		return amount(why.InsufficientPods, why.NoResource, why.Count, 1,
			int64(have.GetAllowedPodNumber()-len(node.GetPods())))
	}
	name, isResource := strings.CutPrefix(text, "Insufficient ")
	if !isResource {
		return why.Reason{Code: why.UpstreamFilter}
	}
	if p.asked == nil {
		p.asked = resourcehelper.PodRequests(p.Pod, resourcehelper.PodResourcesOptions{})
	}
	asked := p.asked
	switch scalar := corev1.ResourceName(name); scalar {
	case corev1.ResourceCPU:
		return amount(why.InsufficientCPU, why.CPU, why.MilliCPU, asked.Cpu().MilliValue(),
			have.GetMilliCPU()-used.GetMilliCPU())
	case corev1.ResourceMemory:
		return amount(why.InsufficientMemory, why.Memory, why.Bytes, asked.Memory().Value(),
			have.GetMemory()-used.GetMemory())
	case corev1.ResourceEphemeralStorage:
		return amount(why.InsufficientEphemeralStorage, why.NoResource, why.Bytes,
			asked.StorageEphemeral().Value(), have.GetEphemeralStorage()-used.GetEphemeralStorage())
	// The total helps to distinguish a node without the resource from one that has given it out.
	default:
		need := asked[scalar]
		has := have.GetScalarResources()[scalar]
		r := amount(why.InsufficientExtended, why.NoResource, why.Count, need.Value(),
			has-used.GetScalarResources()[scalar])
		r.Extra = has
		return r
	}
}

// amount returns no numbers if this snapshot has enough: the plugin saw another moment, or other pods in an attempt.
func amount(code why.Code, resource why.Resource, unit why.Unit, asked, free int64) why.Reason {
	if free >= asked {
		return why.Reason{Code: code, Resource: resource}
	}
	return why.Reason{Code: code, Resource: resource, Unit: unit, Asked: asked, Free: max(0, free)}
}

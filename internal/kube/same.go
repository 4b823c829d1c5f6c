package kube

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	nodeinfo "github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// noFacts are the facts of a node of which nothing is known.
func noFacts() ledger.Facts {
	return ledger.Facts{Fault: why.Reason{Code: why.TopologyMissing}, MinSharedCPUs: -1}
}

// sameNode reports whether facts are the same: most Node updates are heartbeats, which must not cost a parse.
func sameNode(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		a.Status.NodeInfo.Architecture == b.Status.NodeInfo.Architecture &&
		a.Status.NodeInfo.KubeletVersion == b.Status.NodeInfo.KubeletVersion &&
		sameMemoryTypes(a.Status.Capacity, b.Status.Capacity) &&
		convert.CPUsGivenTwice(a) == convert.CPUsGivenTwice(b)
}

func sameMemoryTypes(a, b corev1.ResourceList) bool {
	within := func(a, b corev1.ResourceList) bool {
		for name := range a {
			if _, known := b[name]; !known && convert.IsMemory(name) {
				return false
			}
		}
		return true
	}
	return within(a, b) && within(b, a)
}

// SameTopology reports whether nothing that facts are read from differs.
func SameTopology(a, b *v1alpha2.NodeResourceTopology) bool {
	// equal machines share their zones
	shared := len(a.Zones) == len(b.Zones) && len(a.Zones) > 0 && &a.Zones[0] == &b.Zones[0]
	//nolint:staticcheck // deprecated, and still what exporters of v1alpha1 write
	return maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.TopologyPolicies, b.TopologyPolicies) &&
		slices.Equal(a.Attributes, b.Attributes) && (shared || equality.Semantic.DeepEqual(a.Zones, b.Zones))
}

// SameDevice reports whether nothing that facts are read from differs: the status is for people.
func SameDevice(a, b *devicev1alpha1.Device) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		maps.Equal(a.Unread, b.Unread) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// SamePodGroup reports whether nothing that a gang is read from differs: its status changes with each member.
func SamePodGroup(a, b *v1alpha1.PodGroup) bool {
	return a.UID == b.UID && maps.Equal(a.Annotations, b.Annotations) && maps.Equal(a.Unread, b.Unread) &&
		a.Basic == b.Basic && a.Whole == b.Whole && a.TopologyKey == b.TopologyKey && a.Parent == b.Parent &&
		equality.Semantic.DeepEqual(a.Claims, b.Claims) &&
		equality.Semantic.DeepEqual(a.Spec, b.Spec) && a.Status.Phase.IsUnderWay() == b.Status.Phase.IsUnderWay()
}

// SameNumatopology reports whether nothing that facts are read from differs: the exporter's time stamp is ignored.
func SameNumatopology(a, b *nodeinfo.Numatopology) bool {
	return equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// IsEdited reports whether a pod was changed in more than its status.
func IsEdited(was, now *corev1.Pod) bool {
	return was.Generation != now.Generation || !maps.Equal(was.Annotations, now.Annotations) ||
		!maps.Equal(was.Labels, now.Labels) || !equality.Semantic.DeepEqual(was.Spec, now.Spec)
}

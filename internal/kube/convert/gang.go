package convert

import (
	"cmp"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/api/annotation"
)

// gangOf identifies the gang of a pod in the cluster, by its namespace and name, and returns how many members the pod
// says that it needs: 0 where it says nothing that can be read. A pod without a gang has an empty one.
func gangOf(p *corev1.Pod) (gang string, least int) {
	name, _, _ := annotation.Lookup(p.Labels, annotation.PodGroup, annotation.CommunityPodGroup,
		annotation.LightweightGang)
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		name = *g.PodGroupName
	}
	if name = cmp.Or(name, p.Annotations[annotation.GangName]); name == "" {
		return "", 0
	}
	least, err := strconv.Atoi(cmp.Or(p.Annotations[annotation.GangMinAvailable],
		p.Labels[annotation.LightweightMinAvailable]))
	if err != nil {
		least = 0
	}
	return p.Namespace + "/" + name, max(least, 0)
}

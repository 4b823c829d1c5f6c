package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
)

// NewPodGroupInformer returns an informer of the PodGroups of a group, whose objects name the group; what cannot be
// read of one is in Unread. A cluster without the resource looks like one without objects until it is installed.
func NewPodGroupInformer(client rest.Interface, group string) cache.SharedIndexInformer {
	return informerOf(client, v1alpha1.PodGroupResource(group), "PodGroup",
		func() *v1alpha1.PodGroupList { return &v1alpha1.PodGroupList{} },
		func(all *v1alpha1.PodGroupList, g *v1alpha1.PodGroup) { all.Items = append(all.Items, *g) },
		(*publishedPodGroup).read)
}

// ReadPodGroup reads the JSON of a PodGroup. What cannot be read of it is in Unread.
func ReadPodGroup(text []byte) (*v1alpha1.PodGroup, error) {
	var p publishedPodGroup
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, err
	}
	return p.read(), nil
}

// publishedPodGroup is an object whose fields are not read yet, so that one odd object cannot hide the others.
type publishedPodGroup struct {
	metav1.TypeMeta
	Metadata metav1.ObjectMeta
	Spec     struct{ MinMember, MinResources, ScheduleTimeoutSeconds json.RawMessage }
	Status   json.RawMessage
}

func (p *publishedPodGroup) read() *v1alpha1.PodGroup {
	g := &v1alpha1.PodGroup{TypeMeta: p.TypeMeta, ObjectMeta: p.Metadata}
	g.ManagedFields = nil
	var faults unread
	g.Spec.MinMember = readWhole[int32](&faults, "spec.minMember", p.Spec.MinMember)
	g.Spec.MinResources = faults.quantities("spec.minResources", p.Spec.MinResources)
	g.Spec.ScheduleTimeoutSeconds = readWhole[*int32](&faults, "spec.scheduleTimeoutSeconds",
		p.Spec.ScheduleTimeoutSeconds)
	g.Unread = faults
	_ = json.Unmarshal(p.Status, &g.Status) // what does not fit the type is left out
	return g
}

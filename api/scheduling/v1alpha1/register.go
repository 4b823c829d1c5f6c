package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Groups of ElasticQuota and PodGroup.
const (
	// GroupName is Koordinator's (seed 003).
	GroupName = "scheduling.sigs.k8s.io"
	// CommunityGroupName is that of today's scheduler-plugins.
	CommunityGroupName = "scheduling.x-k8s.io"
	// NativeGroupName is Kubernetes' own, of PodGroup alone, whose kind has other fields: it is read, not registered.
	NativeGroupName = "scheduling.k8s.io"
)

// Groups returns the groups of ElasticQuota and PodGroup. A cluster may serve both, and objects of both count.
func Groups() []string { return []string{GroupName, CommunityGroupName} }

// Resource is the resource under which a group serves ElasticQuotas.
func Resource(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "elasticquotas"}
}

// PodGroupGroups returns the groups of PodGroup. A cluster may serve several; of namesakes that of the first counts.
func PodGroupGroups() []string { return append([]string{NativeGroupName}, Groups()...) }

// PodGroupResources returns the resources under which a group may serve PodGroups, the preferred one first.
func PodGroupResources(group string) (resources []schema.GroupVersionResource) {
	versions := []string{"v1alpha1"}
	if group == NativeGroupName {
		versions = []string{"v1beta1", "v1alpha2"} // of Kubernetes 1.37 and 1.36
	}
	for _, v := range versions {
		resources = append(resources, schema.GroupVersionResource{Group: group, Version: v, Resource: "podgroups"})
	}
	return resources
}

// PodGroupResource is the first of PodGroupResources, by which the group is known.
func PodGroupResource(group string) schema.GroupVersionResource { return PodGroupResources(group)[0] }

// CompositeKind is the kind of CompositePodGroups of Kubernetes, which are read like PodGroups.
const CompositeKind = "CompositePodGroup"

// GangKind is a kind of objects that gangs are read from, with the resources under which it may be served.
type GangKind struct {
	Kind string
	At   []schema.GroupVersionResource // the preferred one first
}

// GangKinds returns the PodGroups of all groups, then CompositePodGroups.
func GangKinds() (all []GangKind) {
	for _, group := range PodGroupGroups() {
		all = append(all, GangKind{"PodGroup", PodGroupResources(group)})
	}
	next := schema.GroupVersion{Group: NativeGroupName, Version: "v1alpha3"} // of Kubernetes 1.37
	return append(all, GangKind{CompositeKind, []schema.GroupVersionResource{next.WithResource("compositepodgroups")}})
}

// AddToScheme registers this package's kinds in both groups: decoders need the apiVersion of the object.
func AddToScheme(s *runtime.Scheme) error {
	for _, group := range Groups() {
		version := Resource(group).GroupVersion()
		s.AddKnownTypes(version, &ElasticQuota{}, &ElasticQuotaList{}, &PodGroup{}, &PodGroupList{})
		metav1.AddToGroupVersion(s, version)
	}
	return nil
}

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
)

// Groups returns the groups of ElasticQuota and PodGroup. A cluster may serve both, and objects of both count.
func Groups() []string { return []string{GroupName, CommunityGroupName} }

// Resource is the resource under which a group serves ElasticQuotas.
func Resource(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "elasticquotas"}
}

// PodGroupResource is the resource under which a group serves PodGroups.
func PodGroupResource(group string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "podgroups"}
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

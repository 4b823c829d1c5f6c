package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of ClusterColocationProfile.
const GroupName = "config.koordinator.sh"

// GroupVersion is the group and version of this package's kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Resource is the resource under which ClusterColocationProfiles are served.
func Resource() schema.GroupVersionResource {
	return GroupVersion().WithResource("clustercolocationprofiles")
}

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &ClusterColocationProfile{}, &ClusterColocationProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

// GroupVersion is the group and version of this package's kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: v1alpha2.GroupName, Version: "v1alpha1"}
}

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &NodeResourceTopology{}, &NodeResourceTopologyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

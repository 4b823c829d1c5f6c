package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of NodeMetric and NodeSLO.
const GroupName = "slo.koordinator.sh"

// Kinds of this package's objects.
const (
	NodeMetricKind = "NodeMetric"
	NodeSLOKind    = "NodeSLO"
)

// GroupVersion is the group and version of this package's kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// NodeMetrics is the resource under which NodeMetrics are served.
func NodeMetrics() schema.GroupVersionResource { return GroupVersion().WithResource("nodemetrics") }

// NodeSLOs is the resource under which NodeSLOs are served.
func NodeSLOs() schema.GroupVersionResource { return GroupVersion().WithResource("nodeslos") }

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &NodeMetric{}, &NodeMetricList{}, &NodeSLO{}, &NodeSLOList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of ScheduleExplanation.
const GroupName = "scheduling.koordinator.sh"

// Kind is the kind of this package's objects.
const Kind = "ScheduleExplanation"

// GroupVersion is the group and version of this package's kinds.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Resource is the resource under which ScheduleExplanations are served.
func Resource() schema.GroupVersionResource {
	return GroupVersion().WithResource("scheduleexplanations")
}

// AddToScheme registers this package's kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &ScheduleExplanation{}, &ScheduleExplanationList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

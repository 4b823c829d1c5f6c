package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NodeMetric is what a node and its pods use. Its name is the node's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=nodemetrics,singular=nodemetric
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=.status.nodeMetric.nodeUsage.resources.cpu
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=.status.nodeMetric.nodeUsage.resources.memory
// +kubebuilder:printcolumn:name="Updated",type=date,JSONPath=.status.updateTime
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=.metadata.creationTimestamp
type NodeMetric struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the agent collects, and how often it reports. The manager writes it.
	// +optional
	Spec NodeMetricSpec `json:"spec,omitempty"`
	// Status is what the node and its pods use. The agent of the node writes it.
	// +optional
	Status NodeMetricStatus `json:"status,omitempty"`
}

// NodeMetricList is a list of NodeMetric.
//
// +kubebuilder:object:root=true
type NodeMetricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeMetric `json:"items"`
}

// NodeMetricSpec is what the agent collects, and how often it reports.
type NodeMetricSpec struct {
	// CollectPolicy is how use is collected. Default: the default of each of its fields.
	// +optional
	CollectPolicy *NodeMetricCollectPolicy `json:"metricCollectPolicy,omitempty"`
}

// NodeMetricCollectPolicy is how use is collected.
type NodeMetricCollectPolicy struct {
	// AggregateDurationSeconds is over how many seconds nodeUsage, systemUsage and podUsage are averaged. Default: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AggregateDurationSeconds *int64 `json:"aggregateDurationSeconds,omitempty"`
	// ReportIntervalSeconds is after how many seconds the agent reports again. It reports earlier when use has changed
	// much. Default: 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ReportIntervalSeconds *int64 `json:"reportIntervalSeconds,omitempty"`
	// NodeAggregatePolicy is over which times percentiles are reported.
	// +optional
	NodeAggregatePolicy *AggregatePolicy `json:"nodeAggregatePolicy,omitempty"`
	// NodeMemoryCollectPolicy is what counts as used memory: usageWithoutPageCache, usageWithPageCache, or
	// usageWithHotPageCache, which needs Koordinator's kernel module and counts as usageWithoutPageCache here.
	// Default: usageWithoutPageCache.
	// +optional
	// +kubebuilder:validation:Enum=usageWithHotPageCache;usageWithoutPageCache;usageWithPageCache
	NodeMemoryCollectPolicy *NodeMemoryCollectPolicy `json:"nodeMemoryCollectPolicy,omitempty"`
}

// NodeMemoryCollectPolicy is what counts as used memory.
type NodeMemoryCollectPolicy string

// Values of NodeMemoryCollectPolicy.
const (
	UsageWithoutPageCache NodeMemoryCollectPolicy = "usageWithoutPageCache"
	UsageWithHotPageCache NodeMemoryCollectPolicy = "usageWithHotPageCache"
	UsageWithPageCache    NodeMemoryCollectPolicy = "usageWithPageCache"
)

// AggregatePolicy is over which times percentiles are reported.
type AggregatePolicy struct {
	// Durations are Go durations, such as 5m. The agent reports those of 5m, 10m and 30m. Default: 5m, 10m and 30m.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Type=string
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	Durations []metav1.Duration `json:"durations,omitempty"`
}

// NodeMetricStatus is what a node and its pods use.
type NodeMetricStatus struct {
	// UpdateTime is when the use was last reported.
	// +optional
	UpdateTime *metav1.Time `json:"updateTime,omitempty"`
	// NodeMetric is what the node uses as a whole.
	// +optional
	NodeMetric *NodeMetricInfo `json:"nodeMetric,omitempty"`
	// PodsMetric is what each pod of the node uses.
	// +optional
	PodsMetric []*PodMetricInfo `json:"podsMetric,omitempty"`
	// HostApplicationMetric is what the applications use that NodeSLO lists and Kubernetes does not run.
	// +optional
	HostApplicationMetric []*HostApplicationMetricInfo `json:"hostApplicationMetric,omitempty"`
	// ProdReclaimableMetric is what pods of class koord-prod, or of none, requested and are not expected to use.
	// +optional
	ProdReclaimableMetric *ReclaimableMetric `json:"prodReclaimableMetric,omitempty"`
}

// NodeMetricInfo is what a node uses as a whole.
type NodeMetricInfo struct {
	// NodeUsage is what all processes of the node use.
	// +optional
	NodeUsage ResourceMap `json:"nodeUsage,omitempty"`
	// AggregatedNodeUsages are averages and percentiles of nodeUsage. A time without enough samples has no usage.
	// +optional
	AggregatedNodeUsages []AggregatedUsage `json:"aggregatedNodeUsages,omitempty"`
	// SystemUsage is what belongs to no pod and to no host application.
	// +optional
	SystemUsage ResourceMap `json:"systemUsage,omitempty"`
	// AggregatedSystemUsages are averages and percentiles of systemUsage.
	// +optional
	AggregatedSystemUsages []AggregatedUsage `json:"aggregatedSystemUsages,omitempty"`
	// NUMAUsages are what is used of each NUMA node, whoever uses it.
	// +optional
	NUMAUsages []NUMAUsage `json:"numaUsages,omitempty"`
	// CPUUsages are how long CPUs were busy since the last report, in percent, by the number that the kernel gives the
	// CPU: the first is that of CPU 0. -1 is a CPU that is offline or was not measured.
	// +optional
	// +listType=atomic
	CPUUsages []int32 `json:"cpuUsages,omitempty"`
}

// NUMAUsage is what is used of a NUMA node.
type NUMAUsage struct {
	// NUMANodeID is the number that the kernel gives the NUMA node.
	// +optional
	NUMANodeID int32 `json:"numaNodeID"`
	// NodeUsage is what all processes use of its CPUs and its memory.
	// +optional
	NodeUsage ResourceMap `json:"nodeUsage,omitempty"`
}

// AggregatedUsage is use over a time.
type AggregatedUsage struct {
	// Usage is the average (avg) and the percentiles p50, p90, p95 and p99.
	// +optional
	Usage map[AggregationType]ResourceMap `json:"usage,omitempty"`
	// Duration is the time, which ends at updateTime.
	// +optional
	Duration metav1.Duration `json:"duration,omitempty"`
}

// AggregationType is how samples become one number.
type AggregationType string

// Values of AggregationType.
const (
	AVG AggregationType = "avg"
	P50 AggregationType = "p50"
	P90 AggregationType = "p90"
	P95 AggregationType = "p95"
	P99 AggregationType = "p99"
)

// PodMetricInfo is what a pod uses.
type PodMetricInfo struct {
	// Name is the pod's. A report has no uid: it is about an earlier pod of that name where updateTime is before the
	// pod's start.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace is the pod's.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// PodUsage is what its containers use.
	// +optional
	PodUsage ResourceMap `json:"podUsage,omitempty"`
	// Priority is the pod's class of priority, such as koord-prod.
	// +optional
	Priority string `json:"priority,omitempty"`
	// QoS is the pod's class of QoS, such as LS.
	// +optional
	QoS string `json:"qos,omitempty"`
	// Extensions are of other programs, and are kept as written. Tenon's agent writes cpuThrottledMilliseconds: for how
	// many milliseconds of a second the pod was at its CPU limits. It is absent where there were none.
	// +optional
	Extensions *Unread `json:"extensions,omitempty"`
}

// PodExtension is what Tenon's agent says of a pod in its extensions: of a pod with exclusive CPUs also interrupts.
// +kubebuilder:object:generate=false
type PodExtension struct {
	// ThrottledMilliseconds is for how many milliseconds of a second the pod was throttled.
	ThrottledMilliseconds int64 `json:"cpuThrottledMilliseconds,omitempty"`
	// Interrupts is how often interrupts fire on the CPUs of the pod; nil where that is not known.
	Interrupts *InterruptRate `json:"interruptsPerSecond,omitempty"`
}

// InterruptRate is how often interrupts fire in a second.
// +kubebuilder:object:generate=false
type InterruptRate struct {
	// Devices are interrupts of devices, Kernel those that the kernel makes itself.
	Devices int64 `json:"devices"`
	Kernel  int64 `json:"kernel"`
	// Busiest is the device that fires most; "" where none does.
	Busiest string `json:"busiest,omitempty"`
}

// Encode returns the extensions; nil where they say nothing.
func (x PodExtension) Encode() *Unread {
	raw, err := json.Marshal(x)
	if err != nil || string(raw) == "{}" {
		return nil
	}
	return &Unread{RawExtension: runtime.RawExtension{Raw: raw}}
}

// Extension returns what an agent of Tenon says of the pod. What it says wrongly, or not at all, is zero.
func (p *PodMetricInfo) Extension() (x PodExtension) {
	if p.Extensions == nil {
		return x
	}
	_ = json.Unmarshal(p.Extensions.Raw, &x) // the fields that can be read are set
	x.ThrottledMilliseconds = max(0, x.ThrottledMilliseconds)
	if i := x.Interrupts; i != nil && (i.Devices < 0 || i.Kernel < 0) {
		x.Interrupts = nil
	}
	return x
}

// HostApplicationMetricInfo is what a host application uses.
type HostApplicationMetricInfo struct {
	// Name is that of the application in NodeSLO.
	// +optional
	Name string `json:"name,omitempty"`
	// Usage is what its processes use.
	// +optional
	Usage ResourceMap `json:"usage,omitempty"`
	// Priority is that of the application in NodeSLO.
	// +optional
	Priority string `json:"priority,omitempty"`
	// QoS is that of the application in NodeSLO.
	// +optional
	QoS string `json:"qos,omitempty"`
}

// ReclaimableMetric is what was requested and is not expected to be used.
type ReclaimableMetric struct {
	// Resource are the amounts.
	// +optional
	Resource ResourceMap `json:"resource,omitempty"`
}

// ResourceMap are amounts of resources.
type ResourceMap struct {
	// Resources are quantities by resource: cpu, memory.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// Devices are written by Koordinator's agent, and are kept as written. Tenon reads no use of devices from here.
	// +optional
	Devices []Unread `json:"devices,omitempty"`
}

// Unread is an object that is kept as written: no part of Tenon reads it.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Unread struct {
	runtime.RawExtension `json:",inline"`
}

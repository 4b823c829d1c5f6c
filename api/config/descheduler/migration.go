package descheduler

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Predicates say which pods may be moved at all. The arguments of MigrationController and DefaultEvictor have them.
type Predicates struct {
	// EvictFailedBarePods lets pods without an owner be moved that have failed.
	EvictFailedBarePods bool `json:"evictFailedBarePods,omitempty"`
	// EvictLocalStoragePods lets pods with emptyDir or hostPath volumes be moved.
	EvictLocalStoragePods bool `json:"evictLocalStoragePods,omitempty"`
	// EvictSystemCriticalPods lets pods of the priority 2000000000 and more be moved, and of priorityThreshold.
	EvictSystemCriticalPods bool `json:"evictSystemCriticalPods,omitempty"`
	// IgnorePVCPods keeps pods that use PersistentVolumeClaims from being moved.
	IgnorePVCPods bool `json:"ignorePvcPods,omitempty"`
	// LabelSelector selects the pods that may be moved. Default: all pods.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// PriorityThreshold is the priority from which on pods may not be moved.
	PriorityThreshold *PriorityThreshold `json:"priorityThreshold,omitempty"`
	// NodeFit moves only pods that the scheduler finds a place for on another node.
	NodeFit bool `json:"nodeFit,omitempty"`
	// NodeSelector selects the nodes that nodeFit asks for, such as zone=a. Default: all nodes.
	NodeSelector string `json:"nodeSelector,omitempty" labels:"true"`
}

// PriorityThreshold is a priority by its value or by the name of its class.
type PriorityThreshold struct {
	// Value of the priority.
	Value *int32 `json:"value,omitempty"`
	// Name of a PriorityClass.
	Name string `json:"name,omitempty"`
}

// MigrationControllerArgs are the limits that every move keeps, whichever plugin wants it.
type MigrationControllerArgs struct {
	metav1.TypeMeta `json:",inline"`
	Predicates      `json:",inline"`

	// DryRun decides everything and evicts no pod.
	DryRun bool `json:"dryRun,omitempty"`
	// Paused starts no move and evicts no pod.
	Paused bool `json:"paused,omitempty"`
	// MaxConcurrentReconciles is accepted from configurations of Koordinator.
	MaxConcurrentReconciles *int32 `json:"maxConcurrentReconciles,omitempty" unused:"together"`
	// EvictAllBarePods lets every pod without an owner be moved; nothing creates it again.
	EvictAllBarePods bool `json:"evictAllBarePods,omitempty"`
	// MinPodAge is how old a pod must be before it may be moved.
	MinPodAge metav1.Duration `json:"minPodAge,omitempty" default:"\"5m\"" min:"0"`
	// Namespaces whose pods may be moved.
	Namespaces Ramp `json:"namespaces,omitempty"`

	// EvictQPS is how many pods may be evicted per second, as a number or like "30/m" per minute.
	EvictQPS Rate `json:"evictQPS,omitempty" default:"10"`
	// EvictBurst is how many pods may be evicted at once.
	EvictBurst int32 `json:"evictBurst,omitempty" default:"1" min:"1"`
	// MaxMigratingGlobally is how many pods may move at a time.
	MaxMigratingGlobally *int32 `json:"maxMigratingGlobally,omitempty" min:"0" zero:"unlimited"`
	// MaxMigratingPerNode is how many pods of a node may move at a time.
	MaxMigratingPerNode *int32 `json:"maxMigratingPerNode,omitempty" default:"2" min:"0" zero:"unlimited"`
	// MaxMigratingPerTargetNode is how many pods may move to a node at a time.
	MaxMigratingPerTargetNode *int32 `json:"maxMigratingPerTargetNode,omitempty" min:"0" zero:"unlimited"`
	// MaxMigratingPerNamespace is how many pods of a namespace may move at a time.
	MaxMigratingPerNamespace *int32 `json:"maxMigratingPerNamespace,omitempty" min:"0" zero:"unlimited"`
	// DomainLimits are how many pods of all nodes with the same value of a label may move at a time.
	DomainLimits []DomainLimit `json:"domainLimits,omitempty"`
	// MaxMigratingPerWorkload is how many pods of a workload may move at a time, as a number or in percent of its
	// replicas. Default: 1 of up to 3 replicas, 2 of up to 10, else 10%.
	MaxMigratingPerWorkload *intstr.IntOrString `json:"maxMigratingPerWorkload,omitempty" min:"1"`
	// MaxUnavailablePerWorkload is how many pods of a workload may be unavailable for whatever reason, as a number or
	// in percent of its replicas. Default: as for maxMigratingPerWorkload.
	MaxUnavailablePerWorkload *intstr.IntOrString `json:"maxUnavailablePerWorkload,omitempty" min:"1"`
	// SkipCheckExpectedReplicas also moves pods of workloads that may lose all their pods by these limits.
	SkipCheckExpectedReplicas bool `json:"skipCheckExpectedReplicas,omitempty"`
	// ObjectLimiters are how many pods of a workload, or of a namespace, may be moved within a time.
	ObjectLimiters ObjectLimiters `json:"objectLimiters,omitempty"`
	// AllowUnknownOwners also moves pods whose owner is of a kind whose rollouts cannot be seen.
	AllowUnknownOwners bool `json:"allowUnknownOwners,omitempty"`
	// AllowParkedPartition also moves pods of a StatefulSet whose update stands at its partition.
	AllowParkedPartition bool `json:"allowParkedPartition,omitempty"`
	// ReturnWindow is how long pods of a workload are not moved to a node that others were moved away from.
	ReturnWindow metav1.Duration `json:"returnWindow,omitempty" default:"\"30m\"" min:"0"`
	// OwnerBackoff is how long after a move of a workload the next one waits; 0 is not at all. It doubles with each
	// move of the last 24 hours that failed after the eviction, up to 4 hours. Jobs that were created before a move
	// ended belong to it.
	OwnerBackoff metav1.Duration `json:"ownerBackoff,omitempty" default:"\"5m\"" min:"0"`
	// SkipEvictionGates are checks that are not made. Rollouts, PodDisruptionBudgets and rates are always checked.
	SkipEvictionGates []string `json:"skipEvictionGates,omitempty" allowed:"gates"`

	// EvictionPolicy is how a pod is removed.
	EvictionPolicy string `json:"evictionPolicy,omitempty" default:"\"Eviction\"" allowed:"policies"`
	// DefaultJobMode is whether a place for the pod is held before it is evicted.
	DefaultJobMode string `json:"defaultJobMode,omitempty" default:"reservationFirst" allowed:"jobModes"`
	// DefaultJobTTL is how long a move may take once its job has started.
	DefaultJobTTL metav1.Duration `json:"defaultJobTTL,omitempty" default:"\"5m\"" min:"1"`
	// DefaultDeleteOptions are for the removal of the pod.
	DefaultDeleteOptions *metav1.DeleteOptions `json:"defaultDeleteOptions,omitempty"`
	// SchedulerNames are the schedulers that can hold a place. Pods of others are moved by EvictDirectly alone.
	SchedulerNames []string `json:"schedulerNames,omitempty" default:"schedulers"`
	// ArbitrationArgs say how waiting moves are chosen from.
	ArbitrationArgs Arbitration `json:"arbitrationArgs,omitempty"`
}

// Ramp says which namespaces a change has reached.
type Ramp struct {
	Namespaces `json:",inline"`

	// Selector selects namespaces by their labels. Default: all.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Percent of all namespaces, the same ones each time: more percent only adds namespaces.
	Percent int32 `json:"percent,omitempty" default:"100" min:"0" max:"100"`
}

// Namespaces are some by name.
type Namespaces struct {
	// Include has the only namespaces. Default: all.
	Include []string `json:"include,omitempty"`
	// Exclude has namespaces that do not count, even if included.
	Exclude []string `json:"exclude,omitempty"`
}

// DomainLimit is a limit for each value of a node's label.
type DomainLimit struct {
	// TopologyKey is the label.
	TopologyKey string `json:"topologyKey"`
	// MaxMigrating is how many pods of the nodes with the same value may move at a time.
	MaxMigrating int32 `json:"maxMigrating" min:"1"`
}

// ObjectLimiters are limits within a sliding window.
type ObjectLimiters struct {
	// Workload limits each workload.
	Workload *ObjectLimiter `json:"workload,omitempty" default:"{\"duration\":\"5m\"}"`
	// Namespace limits each namespace.
	Namespace *ObjectLimiter `json:"namespace,omitempty"`
}

// ObjectLimiter is a limit within a sliding window.
type ObjectLimiter struct {
	// Duration is the length of the window; 0s removes it.
	Duration metav1.Duration `json:"duration" min:"0"`
	// MaxMigrating is how many pods may be moved in the window. Default: as many as may move at a time.
	MaxMigrating *intstr.IntOrString `json:"maxMigrating,omitempty" min:"1"`
	// Burst is how many pods may be moved at once; the others follow evenly over the window. Default: maxMigrating.
	Burst *int32 `json:"burst,omitempty" min:"1"`
}

// Arbitration says how waiting moves are chosen from.
type Arbitration struct {
	// Enabled is accepted from configurations of Koordinator.
	Enabled *bool `json:"enabled,omitempty" unused:"arbitrated"`
	// Interval is the time between two choices.
	Interval metav1.Duration `json:"interval,omitempty" default:"\"500ms\"" min:"0"`
}

// Rate is a number per second, or per minute such as 30/m.
type Rate string

// UnmarshalJSON reads a number or a text.
func (r *Rate) UnmarshalJSON(text []byte) error {
	said := string(text)
	if text[0] == '"' {
		if err := json.Unmarshal(text, &said); err != nil {
			return err
		}
	}
	if n, _ := Rate(said).number(); !(n >= 1e-4 && n <= 1e6) {
		return fmt.Errorf("%q is not allowed: use a number per second from 0.0001 to 1000000, or per minute "+
			"as \"30/m\"; to evict no pod use paused", said)
	}
	*r = Rate(said)
	return nil
}

// number returns the number and the time that it is for; 0 for another text.
func (r Rate) number() (n float64, per time.Duration) {
	text, perMinute := strings.CutSuffix(string(r), "/m")
	if per = time.Second; perMinute {
		per = time.Minute
	}
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n, per
	}
	return 0, per
}

// Interval is the time between two.
func (r Rate) Interval() time.Duration {
	n, per := r.number()
	return max(time.Duration(float64(per)/n), 1)
}

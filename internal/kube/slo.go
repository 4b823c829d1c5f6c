package kube

import (
	"encoding/json"
	"errors"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	colocation "github.com/tenon-project/tenon/api/colocation/v1alpha1"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// NewNodeMetricInformer returns an informer of NodeMetrics without managed fields; what cannot be read of one is left
// out. A cluster without the resource looks like one without objects until it is installed.
func NewNodeMetricInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{slo.NodeMetrics()}, slo.NodeMetricKind,
		readTrimmed[slo.NodeMetric])
}

// NewNodeSLOInformer is NewNodeMetricInformer of NodeSLOs.
func NewNodeSLOInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{slo.NodeSLOs()}, slo.NodeSLOKind,
		readTrimmed[slo.NodeSLO])
}

// NewColocationProfileInformer is NewNodeMetricInformer of ClusterColocationProfiles.
func NewColocationProfileInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{colocation.Resource()}, "ClusterColocationProfile",
		readTrimmed[colocation.ClusterColocationProfile])
}

// readTrimmed reads an object as far as it can be read, without managed fields.
func readTrimmed[T any, P readable[T]](text *json.RawMessage) *T {
	object, _ := readAs[T, P](*text) // the API server checks what its CRD says
	P(object).GetObjectMeta().SetManagedFields(nil)
	return object
}

type readable[T any] interface {
	*T
	metav1.ObjectMetaAccessor
}

// readAs reads an object. It refuses quantities that take seconds to read. Where it fails, the object has its metadata,
// and may have more.
func readAs[T any, P readable[T]](text []byte) (*T, error) {
	object, err := new(T), errors.New("a quantity is out of range")
	if !annotation.HasSlowQuantity(string(text)) {
		err = json.Unmarshal(text, object)
	}
	if err != nil {
		_ = json.Unmarshal(text, &struct {
			Metadata metav1.Object `json:"metadata"`
		}{P(object).GetObjectMeta()})
	}
	return object, err
}

// SLOConfig follows the ConfigMap slo-controller-config. What cannot be used changes nothing: the last one that could
// be counts on, also that which sloconfig.Read knows. Without one no Node is reclaimed. Its methods are safe for
// concurrent use.
type SLOConfig struct {
	// Changed is called after each change, with what is wrong with the object; it must be set before Handler is used.
	Changed func(object *corev1.ConfigMap, problem error)

	mu     sync.Mutex // guards config
	config *sloconfig.Config
}

// Get returns what counts; nil without a ConfigMap.
func (s *SLOConfig) Get() *sloconfig.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// Handler makes s follow an informer of the ConfigMap.
func (s *SLOConfig) Handler() cache.ResourceEventHandler {
	put := func(object any) {
		m, ok := object.(*corev1.ConfigMap)
		if !ok || m.Name != sloconfig.Name {
			return
		}
		config, err := sloconfig.Read(m)
		if config != nil {
			s.set(config)
		}
		s.Changed(m, err)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: put, UpdateFunc: func(old, object any) {
			before, _ := old.(*corev1.ConfigMap)
			if m, ok := object.(*corev1.ConfigMap); ok && before != nil && maps.Equal(before.Data, m.Data) {
				return // only what is noted in it has changed
			}
			put(object)
		},
		DeleteFunc: func(any) {
			s.set(nil)
			s.Changed(nil, nil)
		},
	}
}

func (s *SLOConfig) set(config *sloconfig.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = config
}

// NodeMetric is what is read of a NodeMetric.
type NodeMetric struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	// Report is never nil. That of an object which cannot be read has not been made, so that it is expired.
	Report *load.Report
	// Problem is why the object cannot be read.
	Problem string
}

// DeepCopyObject returns a copy, which shares the report: that never changes.
func (m *NodeMetric) DeepCopyObject() runtime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// NewUsageInformer returns an informer of NodeMetrics with what they say about use. A cluster without the resource
// looks like one without objects until it is installed.
func NewUsageInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{slo.NodeMetrics()}, slo.NodeMetricKind,
		func(text *json.RawMessage) *NodeMetric { return ReadNodeMetric(*text) })
}

// ReadNodeMetric reads a NodeMetric.
func ReadNodeMetric(text []byte) *NodeMetric {
	whole, err := readAs[slo.NodeMetric](text)
	m := &NodeMetric{Report: &load.Report{}, ObjectMeta: metav1.ObjectMeta{
		Name: whole.Name, UID: whole.UID, ResourceVersion: whole.ResourceVersion, Generation: whole.Generation,
		CreationTimestamp: whole.CreationTimestamp,
	}}
	var report *load.Report
	if err == nil {
		report, err = convert.LoadReport(whole)
	}
	if err != nil {
		m.Problem = err.Error()
		return m
	}
	m.Report = report
	return m
}

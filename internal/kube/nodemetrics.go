package kube

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

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

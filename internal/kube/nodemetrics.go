package kube

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	slov1alpha1 "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/qos"
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

type nodeMetricList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []NodeMetric
}

// DeepCopyObject returns a copy.
func (l *nodeMetricList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = append([]NodeMetric(nil), l.Items...)
	return &out
}

// NewUsageInformer returns an informer of NodeMetrics with what they say about use. A cluster without the resource looks like one without
// objects until it is installed.
func NewUsageInformer(client rest.Interface) cache.SharedIndexInformer {
	return informerOf(client, []schema.GroupVersionResource{slov1alpha1.NodeMetrics()}, slov1alpha1.NodeMetricKind,
		func() *nodeMetricList { return &nodeMetricList{} },
		func(all *nodeMetricList, m *NodeMetric) { all.Items = append(all.Items, *m) },
		func(text *json.RawMessage) *NodeMetric { return ReadNodeMetric(*text) })
}

// nodeMetric is the part of the JSON that is read.
type nodeMetric struct {
	Spec struct {
		Policy struct {
			Interval *int64 `json:"reportIntervalSeconds"`
		} `json:"metricCollectPolicy"`
	} `json:"spec"`
	Status struct {
		Updated *time.Time `json:"updateTime"`
		Node    *struct {
			Usage      usage `json:"nodeUsage"`
			System     usage `json:"systemUsage"`
			Aggregates []struct {
				Usage    map[load.Statistic]usage `json:"usage"`
				Duration metav1.Duration          `json:"duration"`
			} `json:"aggregatedNodeUsages"`
		} `json:"nodeMetric"`
		Pods []struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Priority  string `json:"priority"`
			Usage     usage  `json:"podUsage"`
		} `json:"podsMetric"`
	} `json:"status"`
}

// usage is a ResourceMap of which cpu and memory are read.
type usage struct {
	Resources struct {
		CPU    *metered `json:"cpu"`
		Memory *metered `json:"memory"`
	} `json:"resources"`
}

// metered is a quantity, in milli.
type metered int64

// UnmarshalJSON reads a quantity as a string or a number. It refuses what is negative.
func (m *metered) UnmarshalJSON(text []byte) error {
	q, err := annotation.ParseQuantity(string(bytes.Trim(text, `"`)))
	if err != nil {
		return err
	}
	if q.Sign() < 0 {
		return fmt.Errorf("the use %s is negative", q.String())
	}
	*m = metered(min(q.Value(), load.Most/1000) * 1000)
	if q.Value() < load.Most/1000 {
		*m = metered(q.MilliValue())
	}
	return nil
}

// amounts returns the use, and whether both of its resources are there.
func (u *usage) amounts() (out load.Amounts, whole bool) {
	if u.Resources.CPU != nil {
		out[load.CPU] = int64(*u.Resources.CPU)
	}
	if u.Resources.Memory != nil {
		out[load.Memory] = int64(*u.Resources.Memory) / 1000
	}
	return out, u.Resources.CPU != nil && u.Resources.Memory != nil
}

// interval is how often agents report where the object does not say it.
const interval = time.Minute

// ReadNodeMetric reads a NodeMetric. A use that lacks one of cpu and memory counts as not reported.
func ReadNodeMetric(text []byte) *NodeMetric {
	var named struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	m := &NodeMetric{Report: &load.Report{}}
	err := json.Unmarshal(text, &named)
	m.ObjectMeta = metav1.ObjectMeta{
		Name: named.Metadata.Name, UID: named.Metadata.UID, ResourceVersion: named.Metadata.ResourceVersion,
		Generation: named.Metadata.Generation, CreationTimestamp: named.Metadata.CreationTimestamp,
	}
	var read nodeMetric
	if err = errors.Join(err, json.Unmarshal(text, &read)); err != nil {
		m.Problem = err.Error()
		return m
	}
	m.Report = read.report()
	return m
}

func (m *nodeMetric) report() *load.Report {
	r := &load.Report{Interval: interval, Pods: make(map[string]load.PodUse, len(m.Status.Pods))}
	if n := m.Spec.Policy.Interval; n != nil && *n > 0 && *n < int64(time.Hour/time.Second)*24 {
		r.Interval = time.Duration(*n) * time.Second
	}
	if m.Status.Updated != nil {
		r.Updated = *m.Status.Updated
	}
	for i := range m.Status.Pods {
		p := &m.Status.Pods[i]
		if use, whole := p.Usage.amounts(); whole {
			band, _ := qos.ParseBand(p.Priority)
			r.Pods[p.Namespace+"/"+p.Name] = load.PodUse{Use: use, Prod: band == qos.Prod || p.Priority == ""}
		}
	}
	n := m.Status.Node
	if n == nil {
		return r
	}
	if use, whole := n.Usage.amounts(); whole {
		r.Use = &use
	}
	r.System, _ = n.System.amounts()
	for i := range n.Aggregates {
		a := load.Aggregate{Duration: n.Aggregates[i].Duration.Duration, Use: map[load.Statistic]load.Amounts{}}
		for statistic, u := range n.Aggregates[i].Usage {
			if use, whole := u.amounts(); whole {
				a.Use[statistic] = use
			}
		}
		r.Aggregates = append(r.Aggregates, a)
	}
	return r
}

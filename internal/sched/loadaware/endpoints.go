package loadaware

import (
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/sched/diag"
)

// Diagnostics returns the endpoint about the use of a node, at Koordinator's path.
func (p *Plugin) Diagnostics() diag.Service {
	return diag.Service{Endpoints: []diag.Endpoint{{
		Path: "node/{nodeName}", Answer: func(r *http.Request, mayRead func(string) bool) any {
			return p.use(r.PathValue("nodeName"), mayRead)
		},
	}}}
}

// nodeUse is the use of a node as the plugin counts it.
type nodeUse struct {
	// Updated is when the agent reported the use; absent without a NodeMetric.
	Updated *time.Time `json:"updateTime,omitempty"`
	// Expired is true if the report is too old: the node then gets the lowest score.
	Expired bool `json:"expired,omitempty"`
	// Use is what all pods use, with estimates of the pods that the report lacks.
	Use corev1.ResourceList `json:"use"`
	// ProdUse is the part of Use that production pods have.
	ProdUse corev1.ResourceList `json:"prodUse"`
	// Problem says why the node's annotation usage-thresholds cannot be parsed. The annotation is then ignored.
	Problem string `json:"problem,omitempty"`
	// Pods are the pods that count with an estimate and that the caller may read.
	Pods []podUse `json:"pods"`
	// PodsHidden counts the pods with an estimate in namespaces that the caller may not read.
	PodsHidden int `json:"podsHidden,omitempty"`
}

// podUse has the field names of Koordinator's endpoint.
type podUse struct {
	// Timestamp is when the pod was bound, or reserved by this scheduler.
	Timestamp time.Time `json:"timestamp"`
	// Pod has the namespace, name and UID of the pod.
	Pod corev1.ObjectReference `json:"pod"`
	// Estimate is what the pod counts with until reports contain it.
	Estimate corev1.ResourceList `json:"estimate"`
}

// use returns the use of a node; nil for an unknown node.
func (p *Plugin) use(name string, mayRead func(namespace string) bool) any {
	node, err := p.nodes.Get(name)
	if err != nil {
		return nil
	}
	view := p.loads.View(name)
	out := nodeUse{
		Use: amounts(view.Use(load.Measure{})), ProdUse: amounts(view.ProdUse()), Pods: []podUse{},
	}
	if text, has := node.Annotations[annotation.UsageThresholdsKey]; has {
		out.Problem = p.overrideOf(text).problem
	}
	if r := view.Report; r != nil && !r.Updated.IsZero() {
		out.Updated = &r.Updated
	}
	out.Expired = view.Report != nil && !p.expiry.Scores(view.Report, p.now())
	for _, pod := range p.loads.Pods(name) {
		namespace, podName, _ := strings.Cut(pod.Name, "/")
		if !mayRead(namespace) {
			out.PodsHidden++
			continue
		}
		out.Pods = append(out.Pods, podUse{
			Timestamp: pod.Assigned, Estimate: amounts(pod.Estimate),
			Pod: corev1.ObjectReference{Namespace: namespace, Name: podName, UID: types.UID(pod.UID)},
		})
	}
	return out
}

// amounts returns amounts as quantities.
func amounts(a amount.Pair) corev1.ResourceList {
	return convert.ResourceList(a.List("cpu", "memory"))
}

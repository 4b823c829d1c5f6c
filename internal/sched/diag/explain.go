package diag

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// ofPod serves what is derived from the pod that the path or the query names, which the caller must be allowed to read.
func (s *server) ofPod(h func(w http.ResponseWriter, r *http.Request, pod *corev1.Pod)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
		if name == "" {
			namespace, name = r.URL.Query().Get("namespace"), r.URL.Query().Get("pod")
		}
		if namespace == "" || name == "" {
			writeError(w, http.StatusBadRequest, "namespace and pod are required: use ?namespace=NAMESPACE&pod=NAME")
			return
		}
		if !s.mayReadPods(r, namespace) {
			writeError(w, http.StatusForbidden, "pods in namespace %s cannot be read: get on pods is missing",
				namespace)
			return
		}
		pod := s.Pod(namespace, name)
		if pod == nil {
			writeError(w, http.StatusNotFound, "cannot find pod %s/%s", namespace, name)
			return
		}
		h(w, r, pod)
	}
}

// explain answers why a pod is pending, or how it was placed. With fixes=true it also tries changes that would help,
// which takes up to a second.
func (s *server) explain(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	out, ok := s.explanation(w, r, pod)
	if !ok {
		return
	}
	if text := r.URL.Query().Get("fixes"); text != "" {
		wanted, err := strconv.ParseBool(text)
		if err != nil {
			writeError(w, http.StatusBadRequest, "fixes=%s is not allowed: use true or false", text)
			return
		}
		if wanted {
			s.addFixes(r, pod, &out)
			s.addForecast(r, &out)
		}
	}
	writeJSON(w, out)
}

// addFixes adds what helps the pod. The answer is valid without it, so an error is a note.
func (s *server) addFixes(r *http.Request, pod *corev1.Pod, into *view.Pod) {
	var err error
	if into.Fixes, into.Search, err = s.WhatIf.Fixes(r.Context(), pod, into); err != nil {
		into.Search = &view.FixSearch{Note: "no fix was looked for: " + err.Error()}
	}
	// Fixes can name other pods, and say what others use of a quota.
	mayRead := s.reader(r)
	into.Fixes = slices.DeleteFunc(into.Fixes, func(f view.Fix) bool {
		return f.Kind == view.FixQuota && !mayRead("") || slices.ContainsFunc(f.Changes, func(c view.Change) bool {
			namespace, named := namespaceOf(c.RemovePod)
			return named && !mayRead(namespace)
		})
	})
}

// addForecast adds when a pod can start that waits. The answer is valid without it, so an error is a note.
func (s *server) addForecast(r *http.Request, into *view.Pod) {
	if into.State != view.Pending {
		return
	}
	answer, err := s.WhatIf.Answer(r.Context(), &view.WhatIf{Ask: view.Ask{Mode: view.PlayForward}})
	if err != nil {
		into.Notes = append(into.Notes, "the start was not estimated: "+err.Error())
		return
	}
	f := answer.Forecast.For(s.reader(r))
	for _, u := range f.Queue {
		if slices.Contains(u.Pods, into.Pod) {
			into.Hold, into.HeldBack = u.Hold, u.HeldBack
			into.Expected, into.Place = u.Start, fmt.Sprintf("%d of %d", u.Position, len(f.Queue)+f.Hidden)
		}
	}
}

// devices serves what explain says of devices.
func (s *server) devices(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	all, ok := s.explanation(w, r, pod)
	if !ok {
		return
	}
	out := struct {
		Pod        string             `json:"pod"`
		State      string             `json:"state"`
		Node       string             `json:"node,omitempty"`
		Choice     *view.DeviceChoice `json:"deviceChoice,omitempty"`
		Candidates []view.Candidate   `json:"candidates"`
	}{Pod: all.Pod, State: all.State, Candidates: append([]view.Candidate{}, all.Candidates...)}
	if p := all.Placement; p != nil {
		out.Node, out.Choice = p.Node, p.Choice
	}
	writeJSON(w, out)
}

// explanation is the answer to explain; false where it has written an error.
func (s *server) explanation(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) (out view.Pod, ok bool) {
	out, err := s.Explain(r.Context(), pod, s.reader(r))
	if err != nil {
		writeError(w, http.StatusInternalServerError, "evaluate pod %s/%s: %v", pod.Namespace, pod.Name, err)
	}
	return out, err == nil
}

// Explain returns why a pod is pending, or how it was placed, to a caller who may read the pods of some namespaces.
func (c *Config) Explain(ctx context.Context, pod *corev1.Pod, mayRead func(namespace string) bool,
) (out view.Pod, err error) {
	if pod.Spec.NodeName != "" {
		out = c.bound(pod)
		c.explainDevices(pod, &out)
		return out, nil
	}
	verdict, err := c.Evaluate(ctx, pod)
	if err != nil {
		return out, err
	}
	out = view.Explain(describe.Pod(pod), verdict, c.Queue(pod))
	for _, p := range c.Plugins {
		if e, ok := p.(Explainer); ok {
			e.Explain(pod, &out, mayRead)
		}
	}
	c.explainDevices(pod, &out)
	return out, nil
}

// explainDevices adds what the plugins know of devices.
func (c *Config) explainDevices(pod *corev1.Pod, into *view.Pod) {
	for _, p := range c.Plugins {
		if e, ok := p.(DeviceExplainer); ok {
			e.ExplainDevices(pod, into)
		}
	}
}

// hints answers which NUMA nodes the resources of a pod fit on, on one node.
func (s *server) hints(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	node := r.PathValue("nodeName")
	v := s.View(node)
	if v == nil {
		writeError(w, http.StatusNotFound, "cannot find node %s", node)
		return
	}
	writeJSON(w, describe.Hints(pod, node, v))
}

// bound returns the explanation of a pod with a node: what it holds there, and the decision for the node if this
// process remembers it.
func (c *Config) bound(pod *corev1.Pod) view.Pod {
	out := describe.Pod(pod).Head
	out.Placement = describe.Placement(pod, c.View(pod.Spec.NodeName))
	out.Placement.Claims = c.Claims(pod)
	out.Data = view.Data{Source: "scheduler"}
	runs, ran := convert.Declared(pod, nil).RunTime(), time.Since(convert.Started(pod))
	if _, outlived := runs.Left(ran); outlived && pod.DeletionTimestamp == nil {
		o := view.Overdue{Declared: runs.Late.String(), Ran: ran.Round(time.Second).String()}
		out.Notes = append(out.Notes, o.Text())
	}
	if out.Rejection != nil {
		out.Rejection.BackoffSeconds = int64(c.RemainingBackoff(pod).Round(time.Second).Seconds())
	}
	if n, ok := c.NodeInfo(pod.Spec.NodeName); !ok || n.Node() == nil {
		out.Notes = append(out.Notes, view.MissingNode(pod.Spec.NodeName))
	}
	if d, ok := c.Decisions.Last(out.UID); ok {
		out.Decision = &d
		out.Nodes = d.Of
	} else {
		out.Notes = append(out.Notes, "the decision is not among the last ones that this scheduler remembers")
	}
	return out
}

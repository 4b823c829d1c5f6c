package diag

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tenon-project/tenon/internal/kube/describe"
	"github.com/tenon-project/tenon/internal/view"
)

// ofPod serves what is derived from the pod that the path names, which the caller must be allowed to read.
func (s *server) ofPod(h func(w http.ResponseWriter, r *http.Request, pod *corev1.Pod)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("name")
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

func (s *server) explain(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		out := s.bound(pod)
		s.explainDevices(pod, &out)
		writeJSON(w, out)
		return
	}
	verdict, err := s.Evaluate(r.Context(), pod)
	if err != nil {
		writeError(w, http.StatusInternalServerError, "evaluate pod %s/%s: %v", pod.Namespace, pod.Name, err)
		return
	}
	out := view.Explain(describe.Pod(pod), verdict, s.Queue(pod))
	for _, p := range s.Plugins {
		if e, ok := p.(Explainer); ok {
			e.Explain(pod, &out, s.reader(r))
		}
	}
	s.explainDevices(pod, &out)
	writeJSON(w, out)
}

func (s *server) explainDevices(pod *corev1.Pod, into *view.Pod) {
	for _, p := range s.Plugins {
		if e, ok := p.(DeviceExplainer); ok {
			e.ExplainDevices(pod, into)
		}
	}
}

func (s *server) hints(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) {
	node := r.PathValue("nodeName")
	v := s.View(node)
	if v == nil {
		writeError(w, http.StatusNotFound, "cannot find node %s", node)
		return
	}
	writeJSON(w, describe.Hints(pod, node, v))
}

func (s *server) bound(pod *corev1.Pod) view.Pod {
	out := describe.Pod(pod).Head
	out.Placement = describe.Placement(pod, s.View(pod.Spec.NodeName))
	out.Data = view.Data{Source: "scheduler"}
	if out.Rejection != nil {
		out.Rejection.BackoffSeconds = int64(s.LeftAlone(pod).Round(time.Second).Seconds())
	}
	if n, ok := s.NodeInfo(pod.Spec.NodeName); !ok || n.Node() == nil {
		out.Notes = append(out.Notes, view.MissingNode(pod.Spec.NodeName))
	}
	if d, ok := s.Decisions.Last(out.Pod, out.UID); ok {
		out.Decision = &d
		out.Nodes = d.Of
	} else {
		out.Notes = append(out.Notes, "the decision is not among the last ones that this scheduler remembers")
	}
	return out
}

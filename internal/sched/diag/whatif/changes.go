package whatif

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// mostNodes bounds AddNode.
const mostNodes = 100

// apply makes one change. It returns a pod that the change placed, nil for none.
func (s *session) apply(c *view.Change) (*placed, error) {
	set := 0
	for _, present := range []bool{
		c.RemovePod != "", c.AddPod != nil, c.Cordon != "", c.AddNode != nil, c.SetQuota != nil, c.ScaleGang != nil,
	} {
		if present {
			set++
		}
	}
	switch {
	case set != 1:
		return nil, bad("has %d kinds of change, want one of removePod, addPod, cordon, addNode", set)
	case c.RemovePod != "":
		return nil, s.removeNamed(c.RemovePod)
	case c.AddPod != nil:
		return s.addPod(c.AddPod)
	case c.Cordon != "":
		return nil, s.cordon(c.Cordon)
	case c.AddNode != nil:
		return nil, s.addNodes(c.AddNode)
	case c.SetQuota != nil:
		return nil, bad("setQuota is not supported: quotas are as they are in the cluster")
	}
	return nil, bad("scaleGang is not supported: add the gang's further pods with addPod")
}

func (s *session) removeNamed(key string) error {
	pod, err := s.named(key)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		return bad("removePod: pod %s is not bound to a node", key)
	}
	if s.pods[key] != nil {
		return bad("removePod: pod %s is removed already", key)
	}
	if err := s.remove(pod); err != nil {
		return bad("removePod: %v", err)
	}
	s.pods[key] = s.successor(pod)
	return nil
}

// named returns the pod of the cluster with a key of namespace/name.
func (s *session) named(key string) (*corev1.Pod, error) {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok || namespace == "" || name == "" {
		return nil, bad("%q is not a pod: want namespace/name", key)
	}
	pod := s.Pod(namespace, name)
	if pod == nil {
		return nil, bad("pod %s does not exist", key)
	}
	return pod, nil
}

// pending returns a pod that can be asked about.
func (s *session) pending(key string) (*corev1.Pod, error) {
	if pod := s.pods[key]; pod != nil {
		return pod, nil
	}
	pod, err := s.named(key)
	if err == nil && pod.Spec.NodeName != "" {
		err = bad("pod %s is bound to node %s: remove it with removePod to ask where it would go", key,
			pod.Spec.NodeName)
	}
	return pod, err
}

// successor returns the pod that comes in the place of a bound one, as its controller would create it. Its quotas count
// it in the place of the other.
func (s *session) successor(pod *corev1.Pod) *corev1.Pod {
	next := convert.Successor(pod)
	next.UID = types.UID(string(pod.UID) + "-successor")
	s.successors[string(next.UID)] = string(pod.UID)
	return next
}

// addPod adds a pod, and places it where it has a node.
func (s *session) addPod(raw json.RawMessage) (*placed, error) {
	pod := &corev1.Pod{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(pod); err != nil {
		return nil, bad("addPod: %v", err)
	}
	if pod.Name == "" {
		return nil, bad("addPod: metadata.name is empty")
	}
	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}
	key := pod.Namespace + "/" + pod.Name
	if s.pods[key] != nil || s.Pod(pod.Namespace, pod.Name) != nil {
		return nil, bad("addPod: pod %s exists already", key)
	}
	pod.UID, pod.ResourceVersion = types.UID(fmt.Sprintf("whatif-%d-%d", s.round, len(s.pods))), ""
	node := pod.Spec.NodeName
	pod.Spec.NodeName = ""
	s.pods[key] = pod
	if node == "" {
		return nil, nil
	}
	if _, err := s.nodes.change(node); err != nil {
		return nil, bad("addPod: spec.nodeName: %v", err)
	}
	p, err := s.place(pod, func(name string) bool { return name == node })
	if p == nil && err == nil {
		err = bad("addPod: pod %s does not fit on node %s", key, node)
	}
	return p, err
}

func (s *session) cordon(name string) error {
	info, err := s.nodes.change(name)
	if err != nil {
		return bad("cordon: %v", err)
	}
	node := info.Node().DeepCopy()
	node.Spec.Unschedulable = true
	info.SetNode(node)
	return nil
}

func (s *session) addNodes(a *view.AddNode) error {
	like, err := s.nodes.Get(a.Like)
	if err != nil || like.Node() == nil {
		return bad("addNode.like: node %s does not exist", a.Like)
	}
	if a.Count < 0 || a.Count > mostNodes {
		return bad("addNode.count is %d, want 1 to %d", a.Count, mostNodes)
	}
	for i := range max(a.Count, 1) {
		node := like.Node().DeepCopy()
		node.Name = fmt.Sprintf("%s-whatif-%d", a.Like, i+1)
		if node.Labels[corev1.LabelHostname] != "" {
			node.Labels[corev1.LabelHostname] = node.Name
		}
		node.UID = types.UID(node.Name)
		if _, err := s.nodes.Get(node.Name); err == nil {
			return bad("addNode: node %s exists already", node.Name)
		}
		info := framework.NewNodeInfo()
		info.SetNode(node)
		s.nodes.add(info)
		s.trial.Add(node.Name, a.Like)
	}
	return nil
}

package whatif

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// mostNodes bounds AddNode.
const mostNodes = 100

// apply makes one change. It returns a pod that the change placed, nil for none.
func (s *session) apply(c *view.Change) (*placed, error) {
	// A change has exactly one kind.
	set := 0
	for _, present := range []bool{
		c.RemovePod != "", c.AddPod != nil, c.PatchPod != nil, c.PatchNode != nil, c.Cordon != "", c.AddNode != nil,
		c.SetQuota != nil, c.ScaleGang != nil,
	} {
		if present {
			set++
		}
	}
	switch {
	case set != 1:
		return nil, bad("has %d kinds of change, want one of removePod, addPod, patchPod, patchNode, cordon, "+
			"addNode, setQuota, scaleGang", set)
	case c.RemovePod != "":
		return nil, s.removeNamed(c.RemovePod)
	case c.AddPod != nil:
		return s.addPod(c.AddPod)
	case c.PatchPod != nil:
		return nil, s.patchPod(c.PatchPod)
	case c.PatchNode != nil:
		return nil, s.patchNode(c.PatchNode)
	case c.Cordon != "":
		return nil, s.cordon(c.Cordon)
	case c.AddNode != nil:
		return nil, s.addNodes(c.AddNode)
	case c.SetQuota != nil:
		return nil, s.setQuota(c.SetQuota)
	}
	return nil, s.scaleGang(c.ScaleGang)
}

// ownQuotas makes the session count quotas by itself. From then on cycles ask the copy and not the scheduler's quotas.
// It starts from what the cluster holds, so it must be made before pods come and go in the session: it would not know
// of those.
func (s *session) ownQuotas() error {
	if s.quotas != nil {
		return nil
	}
	if len(s.pods) > 0 {
		return bad("must come before removePod and addPod")
	}
	s.quotas = s.Quotas()
	return nil
}

// setQuota changes min and max of a quota in the session's copy.
func (s *session) setQuota(raw json.RawMessage) error {
	var q struct {
		Name string              `json:"name"`
		Min  corev1.ResourceList `json:"min"`
		Max  corev1.ResourceList `json:"max"`
	}
	if err := strictly(raw, &q); err != nil {
		return bad("setQuota: %v", err)
	}
	if q.Min == nil && q.Max == nil {
		return bad("setQuota: has neither min nor max")
	}
	if err := s.ownQuotas(); err != nil {
		return bad("setQuota: %v", err)
	}
	if wrong := s.quotas.Set(q.Name, q.Min, q.Max); wrong != "" {
		return bad("setQuota: %s", wrong)
	}
	return nil
}

// scaleGang adds pods that are like the first member of a gang. They have no node, and are asked about as pods of the
// cluster are, by a name that ends in -whatif-N.
func (s *session) scaleGang(raw json.RawMessage) error {
	var g struct {
		Gang string `json:"gang"`
		To   int    `json:"to"`
	}
	if err := strictly(raw, &g); err != nil {
		return bad("scaleGang: %v", err)
	}
	if err := s.ownQuotas(); err != nil {
		return bad("scaleGang: %v", err)
	}
	members := s.Members(g.Gang)
	switch n := len(members); {
	case n == 0:
		return bad("scaleGang: gang %q has no pod: want namespace/name of one that has", g.Gang)
	// A gang can only grow.
	case g.To <= n || g.To > n+mostNodes:
		return bad("scaleGang.to is %d, want %d to %d: the gang has %s", g.To, n+1, n+mostNodes, view.Count(n, "pod"))
	}
	for i := range g.To - len(members) {
		next := convert.Successor(members[0])
		next.Name = fmt.Sprintf("%s-whatif-%d", members[0].Name, i+1)
		key := next.Namespace + "/" + next.Name
		if s.pods[key] != nil || s.Pod(next.Namespace, next.Name) != nil {
			return bad("scaleGang: pod %s exists already", key)
		}
		if err := s.add(key, next, members[0]); err != nil {
			return err
		}
	}
	return nil
}

// add makes a pod one that can be asked about, with devices under the names that the webhook writes. Its UID has the
// number of the session: what plugins remember by UID is never of a pod of another session. like is as for arrive.
func (s *session) add(key string, pod, like *corev1.Pod) error {
	convert.NameDevices(pod)
	pod.UID, pod.ResourceVersion = types.UID(fmt.Sprintf("whatif-%d-%d", s.round, len(s.pods))), ""
	if _, err := s.arrive(pod, like); err != nil {
		return err
	}
	s.created[pod.UID] = true
	if s.pods[key] = pod; s.quotas != nil {
		s.quotas.Put(pod)
	}
	return nil
}

// strictly reads JSON without unknown fields.
func strictly(raw json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// removeNamed removes a bound pod. Its successor can then be asked about under the same name.
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
	if s.pods[key], err = s.successor(pod); err != nil {
		return err
	}
	s.leave(key, pod)
	return nil
}

// patchPod changes a pod that waits.
func (s *session) patchPod(p *view.Patch) error {
	pod, err := s.pending(p.Name)
	if err != nil {
		return bad("patchPod: %v", err)
	}
	next, err := patched(pod, p.Patch)
	if err != nil {
		return bad("patchPod: %v", err)
	}
	if next.Namespace != pod.Namespace || next.Name != pod.Name || next.UID != pod.UID || next.Spec.NodeName != "" {
		return bad("patchPod: metadata.namespace, name, uid and spec.nodeName cannot change")
	}
	if err := s.ownQuotas(); err != nil { // which count what the pod requests now
		return bad("patchPod: %v", err)
	}
	convert.NameDevices(next)
	// Plugins remember what they read of a pod by its UID, while the version is the same.
	s.patches++
	next.ResourceVersion = fmt.Sprintf("whatif-%d", s.patches)
	if _, err := s.arrive(next, nil); err != nil {
		return bad("patchPod: %v", err)
	}
	s.pods[p.Name] = next
	s.quotas.Put(next)
	return nil
}

// patchNode changes a node. The account of its CPUs and devices stays, so what it is read from cannot change.
func (s *session) patchNode(p *view.Patch) error {
	info, err := s.nodes.change(p.Name)
	if err != nil {
		return bad("patchNode: %v", err)
	}
	node := info.Node()
	next, err := patched(node, p.Patch)
	if err != nil {
		return bad("patchNode: %v", err)
	}
	same := node.DeepCopy()
	same.Labels, same.Spec.Taints, same.Spec.Unschedulable = next.Labels, next.Spec.Taints, next.Spec.Unschedulable
	if !equality.Semantic.DeepEqual(same, next) {
		return bad("patchNode: only metadata.labels, spec.taints and spec.unschedulable can change")
	}
	// Labels that the account of the node was read from cannot change: the account would not follow.
	for key := range next.Labels {
		if next.Labels[key] != node.Labels[key] && ofAccount(key) {
			return bad("patchNode: label %s cannot change: the node's account depends on it", key)
		}
	}
	for key := range node.Labels {
		if _, kept := next.Labels[key]; !kept && ofAccount(key) {
			return bad("patchNode: label %s cannot change: the node's account depends on it", key)
		}
	}
	if !next.Spec.Unschedulable { // as the node lifecycle controller does
		next.Spec.Taints = slices.DeleteFunc(next.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnschedulable
		})
	}
	info.SetNode(next)
	return nil
}

// ofAccount reports whether a label of a node may be read into its account.
func ofAccount(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return strings.HasSuffix(domain, "koordinator.sh") || strings.HasSuffix(domain, "tenon.sh")
}

// patched returns a copy of an object with a strategic merge patch, whose result must have no unknown fields.
func patched[T any](object *T, patch json.RawMessage) (*T, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	next := new(T)
	if text, err = strategicpatch.StrategicMergePatch(text, patch, next); err != nil {
		return nil, err
	}
	return next, strictly(text, next)
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

// pending returns a pod that can be asked about. It is one that a change has made or changed, or else one of the
// cluster that has no node.
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
func (s *session) successor(pod *corev1.Pod) (*corev1.Pod, error) {
	next := convert.Successor(pod)
	next.UID = types.UID(string(pod.UID) + "-successor")
	if _, err := s.arrive(next, pod); err != nil {
		return nil, err
	}
	s.successors[string(next.UID)] = string(pod.UID)
	if s.quotas != nil {
		s.quotas.Put(next)
	}
	return next, nil
}

// addPod adds a pod, and places it where it has a node.
func (s *session) addPod(raw json.RawMessage) (*placed, error) {
	pod := &corev1.Pod{}
	if err := strictly(raw, pod); err != nil {
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
	node := pod.Spec.NodeName
	pod.Spec.NodeName = ""
	if err := s.add(key, pod, nil); err != nil {
		return nil, fmt.Errorf("addPod: %w", err)
	}
	if node == "" {
		return nil, nil
	}
	if _, err := s.nodes.change(node); err != nil {
		return nil, bad("addPod: spec.nodeName: %v", err)
	}
	if refused, err := s.admit(pod); refused != nil || err != nil {
		if err == nil {
			err = bad("addPod: the API server refuses the pod: %v", refused)
		}
		return nil, err
	}
	p, err := s.place(pod, func(name string) bool { return name == node })
	if p == nil && err == nil {
		err = bad("addPod: pod %s does not fit on node %s", key, node)
	}
	return p, err
}

// cordon makes a node unschedulable.
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

// addNodes adds nodes like one of the cluster, or to a described machine, without pods. Their CPUs and
// devices are all free: the account is that of the model before any pod was placed on it. A label that names the host
// differs, as pods are spread and selected by it.
func (s *session) addNodes(a *view.AddNode) error {
	like, account, err := s.nodeModel(a)
	if err != nil {
		return err
	}
	if a.Count < 0 || a.Count > mostNodes {
		return bad("addNode.count is %d, want 1 to %d", a.Count, mostNodes)
	}
	for i := range max(a.Count, 1) {
		node := convert.NodeLike(like, fmt.Sprintf("%s-whatif-%d", a.Like, i+1))
		if _, err := s.nodes.Get(node.Name); err == nil {
			return bad("addNode: node %s exists already", node.Name)
		}
		info := framework.NewNodeInfo()
		info.SetNode(node)
		s.nodes.add(info)
		if account != nil {
			s.trial.Imagine(node.Name, account)
		} else {
			s.trial.Add(node.Name, a.Like)
		}
	}
	return nil
}

// nodeModel returns the node that added ones are equal to, and its account if the cluster does not have it. A described
// machine has the objects that its agents would report, Node, NodeResourceTopology and Device; what it leaves out, the
// account lacks as it would lack it on a node without that agent.
func (s *session) nodeModel(a *view.AddNode) (*corev1.Node, *ledger.View, error) {
	if a.Machine == nil {
		like, err := s.nodes.Get(a.Like)
		if err != nil || like.Node() == nil {
			return nil, nil, bad("addNode.like: node %s does not exist", a.Like)
		}
		return like.Node(), nil, nil
	}
	if a.Machine.Node == nil {
		return nil, nil, bad("addNode.machine.node is missing")
	}
	if wrong := validation.IsDNS1123Subdomain(a.Like); len(wrong) > 0 {
		return nil, nil, bad("addNode.like is %q, want a name for the machine: %s", a.Like, wrong[0])
	}
	node := &corev1.Node{}
	var topology *v1alpha2.NodeResourceTopology
	var devices *devicev1alpha1.Device
	err := strictly(a.Machine.Node, node)
	if err == nil && a.Machine.Topology != nil {
		topology = &v1alpha2.NodeResourceTopology{}
		err = strictly(a.Machine.Topology, topology)
	}
	if err == nil && a.Machine.Device != nil {
		devices = &devicev1alpha1.Device{}
		err = strictly(a.Machine.Device, devices)
	}
	if err != nil {
		return nil, nil, bad("addNode.machine: %v", err)
	}
	node.Name = a.Like
	if topology != nil {
		topology.Name = a.Like
	}
	if devices != nil {
		devices.Name = a.Like
	}
	return node, s.Store.Imagine(node, topology, devices), nil
}

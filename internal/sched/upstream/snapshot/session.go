package snapshot

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// loops is what the scheduling loop's snapshot can do besides being read.
type loops interface {
	fwk.SharedLister
	AssumePod(pod *framework.PodInfo) error
	ForgetPod(logger klog.Logger, pod *corev1.Pod) error
	AssumePlacement(placement *fwk.Placement) error
	ForgetPlacement()
}

// Session is changes of the scheduling loop's snapshot. Its user takes them back before the cycle ends. A node's
// generation does not change, as the node is in the end as the cache knows it.
type Session struct {
	snapshot loops
	// assumed has the pods that were assumed, in this order.
	assumed []entry
}

// entry is a pod that a Session has put on its node.
type entry struct {
	pod *framework.PodInfo
	// indexed is set if AssumePod put it there, so that the snapshot's indexes have the pod.
	indexed bool
}

// Begin begins to change the snapshot of a profile. All profiles have the same one.
func Begin(f framework.Framework) *Session { return begin(f.SnapshotSharedLister()) }

func begin(lister fwk.SharedLister) *Session { return &Session{snapshot: lister.(loops)} }

// Assume puts a pod on the node that it names.
func (s *Session) Assume(pod *framework.PodInfo) error {
	e := entry{pod, s.changesIndexes(pod.Pod)}
	if e.indexed {
		if err := s.snapshot.AssumePod(pod); err != nil {
			return err
		}
	} else if err := s.change(pod.Pod.Spec.NodeName, func(n *framework.NodeInfo) error {
		n.AddPodInfo(pod)
		return nil
	}); err != nil {
		return err
	}
	s.assumed = append(s.assumed, e)
	return nil
}

// Forget takes a pod off that was assumed, whichever pods were assumed after it. After an error the snapshot is not as
// it should be.
func (s *Session) Forget(logger klog.Logger, pod *corev1.Pod) error {
	at := slices.IndexFunc(s.assumed, func(e entry) bool { return e.pod.Pod.UID == pod.UID })
	if at < 0 {
		return fmt.Errorf("pod %s/%s is not assumed", pod.Namespace, pod.Name)
	}
	if !s.assumed[at].indexed {
		s.assumed = slices.Delete(s.assumed, at, at+1)
		return s.Remove(logger, pod)
	}
	later := slices.Clone(s.assumed[at+1:])
	var errs []error
	for len(s.assumed) > at {
		last := s.assumed[len(s.assumed)-1]
		s.assumed = s.assumed[:len(s.assumed)-1]
		if last.indexed {
			errs = append(errs, s.snapshot.ForgetPod(logger, last.pod.Pod))
		} else {
			errs = append(errs, s.Remove(logger, last.pod.Pod))
		}
	}
	for _, e := range later {
		errs = append(errs, s.Assume(e.pod))
	}
	return errors.Join(errs...)
}

// Remove takes a pod off its node that the cache has there.
func (s *Session) Remove(logger klog.Logger, pod *corev1.Pod) error {
	return s.change(pod.Spec.NodeName, func(n *framework.NodeInfo) error { return n.RemovePod(logger, pod) })
}

// Return puts a pod back that Remove has taken off.
func (s *Session) Return(pod fwk.PodInfo) error {
	return s.change(pod.GetPod().Spec.NodeName, func(n *framework.NodeInfo) error {
		n.AddPodInfo(pod)
		return nil
	})
}

// change changes a node, and keeps its generation.
func (s *Session) change(node string, change func(*framework.NodeInfo) error) error {
	info, err := s.snapshot.NodeInfos().Get(node)
	if err != nil {
		return err
	}
	n := info.(*framework.NodeInfo)
	generation := n.Generation
	err = change(n)
	n.Generation = generation
	return err
}

// changesIndexes reports whether indexes of the snapshot change if a pod is put on its node: it uses claims, or its
// node enters a list. The list of required anti-affinity decides for a pod that requires it, as filters read that one.
func (s *Session) changesIndexes(pod *corev1.Pod) bool {
	info, err := s.snapshot.NodeInfos().Get(pod.Spec.NodeName)
	if err != nil {
		return true // AssumePod adds the node
	}
	list, has := s.snapshot.NodeInfos().HavePodsWithAffinityList, len(info.GetPodsWithAffinity()) > 0
	affinity := pod.Spec.Affinity
	declares := affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
	if declares && affinity.PodAntiAffinity != nil &&
		len(affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		list = s.snapshot.NodeInfos().HavePodsWithRequiredAntiAffinityList
		has = len(info.GetPodsWithRequiredAntiAffinity()) > 0
	}
	if declares && !has {
		nodes, err := list()
		return err != nil || !slices.Contains(nodes, info)
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
}

// Release lets cycles see all nodes of the snapshot again.
func Release(f framework.Framework) { f.SnapshotSharedLister().(loops).ForgetPlacement() }

// Confine lets cycles see these nodes of the snapshot alone, until Release. The name distinguishes them from others.
func Confine(f framework.Framework, name string, nodes []string) error {
	s := f.SnapshotSharedLister().(loops)
	p := &fwk.Placement{Name: name}
	for _, node := range nodes {
		if n, err := s.NodeInfos().Get(node); err == nil {
			p.Nodes = append(p.Nodes, n)
		}
	}
	return s.AssumePlacement(p)
}

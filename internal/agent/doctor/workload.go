package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// WorkloadView is what the API says of workloads.
type WorkloadView convert.WorkloadObjects

// Workloads checks what operators and Kueue write: what keeps pods from starting, and is not an error of any pod.
func Workloads(v WorkloadView) []Finding {
	var all findings
	all.add("two-quotas", orOK(v.twoQuotas(), "no pod is counted by Kueue and by an ElasticQuota")...)
	all.add("kueue-node", orOK(v.kueueNodes(), "no pod waits for a node that Kueue has chosen")...)
	all.add("priorities", orOK(v.priorities(), "Workloads of Kueue and their pods have the same order of priority")...)
	all.add("mpi-launcher", orOK(v.launchers(), "no MPIJob waits for its own launcher")...)
	all.add("ray-podgroup", orOK(v.rayGroups(), "KubeRay writes no PodGroup")...)
	all.add("volcano-job", orOK(v.volcanoJobs(), "no Volcano Job waits for Volcano's scheduler")...)
	return all
}

// orOK returns what was found, or that all is well.
func orOK(found []Finding, well string) []Finding {
	if len(found) == 0 {
		return []Finding{ok("", "%s", well)}
	}
	return found
}

// twoQuotas names each ElasticQuota that counts pods of Kueue.
func (v *WorkloadView) twoQuotas() (found []Finding) {
	mapping, pods := quota.NewMapping(v.Quotas), map[string][]string{}
	for i := range v.Pods {
		p := &v.Pods[i]
		name, _ := mapping.Of(convert.PodsOf(p))
		if name != quota.Default && name != quota.System && convert.KueueAdmits(p) && !convert.Ended(p) {
			pods[name] = append(pods[name], nameOf(p))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		slices.Sort(pods[name])
		found = append(found, ok("ElasticQuota "+name, "counts %s, as a ClusterQueue of Kueue does",
			andMore(pods[name])).Because(Warn, "such a pod starts only where both quotas have room",
			"leave these pods out of the ElasticQuota, or their jobs out of Kueue"))
	}
	return found
}

// kueueNodes names pods that were refused on the node that Kueue's topology-aware scheduling chose.
func (v *WorkloadView) kueueNodes() (found []Finding) {
	for i := range v.Pods {
		p := &v.Pods[i]
		node := convert.KueueNode(p)
		c := podCondition(p)
		if node == "" || p.Spec.NodeName != "" || c == nil || !why.Refuses(c.Reason) {
			continue
		}
		f := ok("pod "+nameOf(p), "node %s was chosen by Kueue's topology assignment", node)
		found = append(found, f.Because(Warn, "the scheduler refuses the node: "+c.Message,
			"leave kubernetes.io/hostname out of the levels of the Topology, or switch Kueue's topology-aware "+
				"scheduling off for these nodes"))
	}
	return found
}

func podCondition(p *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// admitted is a Workload of Kueue with the priority of its pods.
type admitted struct {
	name       string
	kueue, pod int64
}

// priorities names the first pair of Workloads of which each goes before the other, in Kueue or for its pods. Pods that
// evict no others do not count.
func (v *WorkloadView) priorities() []Finding {
	pods := map[string]int64{}
	for i := range v.Pods {
		p := &v.Pods[i]
		workload := convert.KueueWorkload(p)
		never := p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == corev1.PreemptNever
		if workload != "" && p.Spec.Priority != nil && !never && !convert.Ended(p) {
			pods[p.Namespace+"/"+workload] = int64(*p.Spec.Priority)
		}
	}
	var all []admitted
	for i := range v.Workloads {
		w := &v.Workloads[i]
		priority, _, _ := unstructured.NestedInt64(w.Object, "spec", "priority")
		if pod, known := pods[nameOf(w)]; known {
			all = append(all, admitted{nameOf(w), priority, pod})
		}
	}
	// By Kueue's priority; then a pod's priority that falls contradicts it.
	slices.SortFunc(all, func(a, b admitted) int {
		return cmp.Or(cmp.Compare(a.kueue, b.kueue), cmp.Compare(a.pod, b.pod), cmp.Compare(a.name, b.name))
	})
	for i := 1; i < len(all); i++ {
		if low, high := all[i-1], all[i]; high.pod < low.pod {
			return []Finding{ok("Workloads "+high.name+" and "+low.name, "in Kueue the first has the higher priority "+
				"(%d, %d), and its pods have the lower one (%d, %d)", high.kueue, low.kueue, high.pod, low.pod).Because(
				Warn, "Kueue and the scheduler each evict what the other has started",
				"use one priority for both, or set preemptionPolicy: Never in the PriorityClasses of these pods")}
		}
	}
	return nil
}

// launchers names MPIJobs whose PodGroup counts a launcher that the operator creates only after the workers run.
func (v *WorkloadView) launchers() (found []Finding) {
	jobs := map[string]*unstructured.Unstructured{}
	for i := range v.MPIJobs {
		jobs[nameOf(&v.MPIJobs[i])] = &v.MPIJobs[i]
	}
	for i := range v.PodGroups {
		g := &v.PodGroups[i]
		owner := metav1.GetControllerOfNoCopy(g)
		if owner == nil || owner.Kind != "MPIJob" {
			continue
		}
		job := jobs[g.Namespace+"/"+owner.Name]
		if job == nil {
			continue
		}
		policy, _, _ := unstructured.NestedString(job.Object, "spec", "launcherCreationPolicy")
		workers, said, _ := unstructured.NestedInt64(job.Object, "spec", "mpiReplicaSpecs", "Worker", "replicas")
		if !said {
			workers = 1
		}
		if policy != "WaitForWorkersReady" || int64(g.Spec.MinMember) <= workers {
			continue
		}
		found = append(found, ok("MPIJob "+nameOf(job), "spec.launcherCreationPolicy is WaitForWorkersReady, and its "+
			"PodGroup requires %d members", g.Spec.MinMember).Because(Fail, fmt.Sprintf("the operator creates only %s "+
			"before these are ready, so none starts (mpi-operator #608)", view.Count(int(workers), "worker")),
			fmt.Sprintf("set spec.runPolicy.schedulingPolicy.minAvailable: %d, or leave the operator's flag "+
				"--gang-scheduling empty", workers)))
	}
	return found
}

// rayGroups names RayClusters for which KubeRay writes PodGroups.
func (v *WorkloadView) rayGroups() (found []Finding) {
	for i := range v.PodGroups {
		if owner := metav1.GetControllerOfNoCopy(&v.PodGroups[i]); owner != nil && owner.Kind == "RayCluster" {
			f := ok("RayCluster "+v.PodGroups[i].Namespace+"/"+owner.Name, "KubeRay has written its PodGroup")
			found = append(found, f.Because(Warn, "KubeRay does not update it when the cluster is scaled or "+
				"suspended (kuberay #5205)",
				"leave batchScheduler of the operator empty, and set schedulerName in the templates"))
		}
	}
	return found
}

// volcanoJobs names Jobs of Volcano for another scheduler that have no pods yet.
func (v *WorkloadView) volcanoJobs() (found []Finding) {
	for i := range v.VolcanoJobs {
		job := &v.VolcanoJobs[i]
		scheduler, _, _ := unstructured.NestedString(job.Object, "spec", "schedulerName")
		phase, _, _ := unstructured.NestedString(job.Object, "status", "state", "phase")
		if scheduler == "" || scheduler == "volcano" || phase != "" && phase != "Pending" {
			continue
		}
		f := ok("Job "+nameOf(job)+" of Volcano", "is pending, with the scheduler %s", scheduler)
		found = append(found, f.Because(Warn,
			"Volcano's controller creates its pods only after Volcano's scheduler has enqueued the PodGroup",
			"use a JobSet, or leave the Job to Volcano's scheduler"))
	}
	return found
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

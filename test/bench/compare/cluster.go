package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/annotation"
)

const (
	namespace = "bench"
	rackLabel = "example.com/rack" // of nodes
	rackNodes = 50
	workers   = 64
)

var nrtResource = schema.GroupVersionResource{
	Group: "topology.node.k8s.io", Version: "v1alpha2",
	Resource: "noderesourcetopologies",
}

// cluster is the control plane under test, seen by its clients.
type cluster struct {
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	pid     int // of the control plane's process
	config  string
	leaves  int  // of the tree of ElasticQuotas
	gpus    int  // kinds of server with Devices; 0 is none
	kinds   int  // of server by their topologies
	volumes bool // there are claims, volumes and CSINodes
	cards   bool // the nodes have ResourceSlices
	claims  int  // ResourceClaims

	reservations int
	reports      bool // the nodes have NodeMetrics
}

func connect(kubeconfig string, pid int) (*cluster, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 50_000, 50_000
	plain := rest.CopyConfig(cfg)
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(plain)
	if err != nil {
		return nil, err
	}
	return &cluster{kube: kube, dynamic: dyn, pid: pid, config: kubeconfig}, nil
}

// each runs f for 0…n-1 on the worker pool and returns the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	var (
		next  atomic.Int64
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for range min(workers, n) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return
				}
				if err := f(ctx, i); err != nil {
					once.Do(func() { first = err })
					return
				}
			}
		})
	}
	wg.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// addNodes creates nodes of 32 CPUs (2 sockets × 1 NUMA node × 8 cores × 2 threads), 256 GiB, a disk of 1 TiB and 250
// pods, with topology.
func (c *cluster) addNodes(ctx context.Context, n, owners int) error {
	for _, name := range []string{namespace, quotaNamespace, fillNamespace} {
		if _, err := c.kube.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := c.addOwners(ctx, owners); err != nil {
		return err
	}
	if _, err := c.kube.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: aboveFill}, Value: 1000,
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	topology, err := benchTopology(0)
	if err != nil {
		return err
	}
	c.kinds = 1
	return each(ctx, n, func(ctx context.Context, i int) error {
		name := nodeName(i)
		res := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
				corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
				rackLabel: fmt.Sprintf("rack-%d", i/rackNodes),
			}},
			Status: corev1.NodeStatus{
				Capacity: res, Allocatable: res,
				Conditions: []corev1.NodeCondition{{
					Type: corev1.NodeReady, Status: corev1.ConditionTrue,
					Reason: "Ready", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
				}},
			},
		}
		if _, err := c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node: %w", err)
		}
		nrt := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
			"metadata": map[string]any{"name": name, "annotations": map[string]any{
				"node.koordinator.sh/cpu-topology":          topology,
				"kubelet.koordinator.sh/cpu-manager-policy": `{"policy":"none"}`,
			}},
			"zones": []any{},
		}}
		if _, err := c.dynamic.Resource(nrtResource).Create(ctx, nrt, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create topology: %w", err)
		}
		return nil
	})
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// setKinds makes the nodes servers of so many kinds.
func (c *cluster) setKinds(ctx context.Context, nodes, kinds int) error {
	if kinds == c.kinds {
		return nil
	}
	c.kinds = kinds
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		topology, err := benchTopology(i % kinds)
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{annotation.CPUTopology: topology},
		}})
		if err != nil {
			return err
		}
		_, err = c.dynamic.Resource(nrtResource).Patch(ctx, nodeName(i), types.MergePatchType, patch,
			metav1.PatchOptions{})
		return err
	})
}

// benchTopology returns the CPU topology of a kind of server. Kinds differ by the numbers of their CPUs and, from 16
// on, by the cores that share a cache.
func benchTopology(kind int) (string, error) {
	type cpu struct {
		ID     int  `json:"id"`
		Core   int  `json:"core"`
		Socket int  `json:"socket"`
		Node   int  `json:"node"`
		L3     *int `json:"l3,omitempty"`
	}
	var detail []cpu
	for id := range 32 {
		core := (id + kind) % 16
		one := cpu{ID: id, Core: core, Socket: core / 8, Node: core / 8}
		if shared := kind / 16; shared > 0 {
			l3 := core * shared / 8
			one.L3 = &l3
		}
		detail = append(detail, one)
	}
	text, err := json.Marshal(map[string]any{"detail": detail})
	return string(text), err
}

// workload is the pods of a case.
type workload struct {
	cpu, memory string
	labels      map[string]string
	annotations map[string]string
	limits      bool
	percent     int64  // of GPUs
	sizes       int    // number of different requests, in round robin
	owner       string // kind of the pods' controller
	owners      int    // number of controllers, in round robin
	leaves      int    // number of quotas, in round robin
	size        int    // of gangs; 0 is none
	native      bool   // gangs are those of Kubernetes
	rack        bool   // a gang is to be in one rack
	priority    string // class
	even        bool   // pods are spread over zones by a constraint that must hold
	apart       bool   // a node may have one pod
	volumes     bool   // each pod has a claim
	claims      bool   // each pod has a ResourceClaim
}

// alternating is the number of workloads in the cases that have several.
const alternating = 50

func podName(run string, i int) string { return fmt.Sprintf("%s-%05d", run, i) }

func (w workload) pod(run string, i int) *corev1.Pod {
	req := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(w.cpu), corev1.ResourceMemory: resource.MustParse(w.memory),
	}
	if w.sizes > 0 {
		req[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(50+2*(i%w.sizes)), resource.DecimalSI)
	}
	app := "bench" // equal for all pods: one class
	if w.owners > 1 {
		app = fmt.Sprintf("bench-%02d", i%w.owners)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(run, i), Namespace: namespace,
			Labels: map[string]string{"app": app}, Annotations: w.annotations,
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "registry.k8s.io/pause", Resources: corev1.ResourceRequirements{Requests: req},
		}}},
	}
	maps.Copy(pod.Labels, w.labels)
	switch w.owner {
	case "StatefulSet":
		pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	case "Job":
		pod.Labels["batch.kubernetes.io/job-completion-index"] = strconv.Itoa(i)
	}
	if w.owner != "" {
		controls := true
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: w.owner, Name: app, UID: types.UID(app), Controller: &controls,
		}}
	}
	if w.leaves > 0 {
		pod.Labels[annotation.QuotaName] = leafName(i % w.leaves)
		req[corev1.ResourceEphemeralStorage] = resource.MustParse("512Mi")
	}
	if w.size > 0 {
		w.join(pod, gangName(run, i/w.size))
	}
	pod.Spec.PriorityClassName = w.priority
	same := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if w.even {
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: same,
		}}
	}
	if w.apart {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: same,
			}},
		}}
	}
	if w.volumes {
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(i)},
		}}}
	}
	if w.claims {
		name := deviceClaim(i)
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &name}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	if w.percent > 0 {
		amount := *resource.NewQuantity(w.percent, resource.DecimalSI)
		req[gpuName] = amount
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpuName: amount}
	}
	if w.limits {
		pod.Spec.Containers[0].Resources.Limits = req
	}
	return pod
}

// addOwners creates the controllers that pods name as theirs, which default spreading reads, and Services for half of
// n alternating ones. No controller runs that would act on them.
func (c *cluster) addOwners(ctx context.Context, n int) error {
	template := corev1.PodTemplateSpec{Spec: workload{cpu: "1", memory: "1Gi"}.pod("template", 0).Spec}
	none := int32(0)
	for i := range n + 1 {
		app := "bench"
		if i < n {
			app = fmt.Sprintf("bench-%02d", i)
		}
		labels := map[string]string{"app": app}
		meta := metav1.ObjectMeta{Namespace: namespace, Name: app}
		selector := &metav1.LabelSelector{MatchLabels: labels}
		template.Labels = labels
		set := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{
			Replicas: &none, Selector: selector, Template: template,
		}}
		if _, err := c.kube.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create ReplicaSet: %w", err)
		}
		if i == n {
			set := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{
				Replicas: &none, Selector: selector, Template: template,
			}}
			if _, err := c.kube.AppsV1().StatefulSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create StatefulSet: %w", err)
			}
		} else if i%2 == 0 {
			service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
				Selector: labels, Ports: []corev1.ServicePort{{Port: 80}},
			}}
			if _, err := c.kube.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("create Service: %w", err)
			}
		}
	}
	return nil
}

// addPods creates pods first…last-1 of a run.
func (c *cluster) addPods(ctx context.Context, run string, w workload, first, last int) error {
	return each(ctx, last-first, func(ctx context.Context, i int) error {
		_, err := c.kube.CoreV1().Pods(namespace).Create(ctx, w.pod(run, first+i), metav1.CreateOptions{})
		return err
	})
}

// clean deletes every pod and event and waits until the pods are gone.
func (c *cluster) clean(ctx context.Context) error {
	return errors.Join(c.cleanNamespace(ctx, namespace), c.cleanNamespace(ctx, fillNamespace))
}

func (c *cluster) cleanNamespace(ctx context.Context, namespace string) error {
	grace := int64(0)
	del := metav1.DeleteOptions{GracePeriodSeconds: &grace}
	for {
		pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 20_000})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			break
		}
		err = each(ctx, len(pods.Items), func(ctx context.Context, i int) error {
			err := c.kube.CoreV1().Pods(namespace).Delete(ctx, pods.Items[i].Name, del)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return c.kube.EventsV1().Events(namespace).DeleteCollection(ctx, del, metav1.ListOptions{})
}

// waitReady polls until the API server answers.
func (c *cluster) waitReady(ctx context.Context) error {
	for {
		if _, err := c.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("control plane is not ready: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

package verb

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
)

// demoLimit bounds the wait for the demo's pods to be placed or refused.
const demoLimit = time.Minute

// demo applies the demo to the running cluster and prints what became of its pods and the commands to go on with.
func demo(ctx context.Context, dir datadir.Dir, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", dir.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	applier, err := install.NewApplier(config)
	if err != nil {
		return err
	}
	objects, err := install.Parse(examples.Demo())
	if err != nil {
		return err
	}
	if err := applier.Apply(ctx, objects); err != nil {
		return err
	}
	pods, err := awaitSettled(ctx, client)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, outcome(pods))
	return err
}

// outcome says how many pods run, which do not, and what to try next.
func outcome(pods []corev1.Pod) string {
	var pending []string
	for i := range pods {
		if pods[i].Spec.NodeName == "" {
			pending = append(pending, pods[i].Name)
		}
	}
	slices.Sort(pending)
	var b strings.Builder
	fmt.Fprintf(&b, "Demo: %d pods are placed", len(pods)-len(pending))
	if len(pending) > 0 {
		fmt.Fprintf(&b, ", %d pending (%s)", len(pending), strings.Join(pending, ", "))
	}
	b.WriteString(". Go on with:\n")
	if len(pending) > 0 {
		fmt.Fprintf(&b, "  %s explain pod/%s\n", name(), pending[0])
	}
	if node := placed(pods); node != "" {
		fmt.Fprintf(&b, "  %s topology node/%s\n", name(), node)
	}
	return b.String()
}

// placed returns the node of some pod with CPUs of its own, else of any pod.
func placed(pods []corev1.Pod) string {
	node := ""
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" {
			continue
		}
		node = p.Spec.NodeName
		if c := p.Labels[annotation.QoSClass]; c == "LSE" || c == "LSR" {
			break
		}
	}
	return node
}

// awaitSettled returns the demo's pods once every one of them exists and is running, done or refused by the scheduler.
func awaitSettled(ctx context.Context, client kubernetes.Interface) ([]corev1.Pod, error) {
	var pods []corev1.Pod
	var waiting string
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, demoLimit, true,
		func(ctx context.Context) (done bool, err error) {
			pods, waiting, err = look(ctx, client)
			return err == nil && waiting == "", err
		})
	if err != nil {
		return nil, fmt.Errorf("wait for the demo's pods: %w: %s", err, waiting)
	}
	return pods, nil
}

// look returns the demo's pods, and what is still to come.
func look(ctx context.Context, client kubernetes.Interface) (pods []corev1.Pod, waiting string, err error) {
	selector := metav1.ListOptions{LabelSelector: examples.DemoLabel}
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, selector)
	if err != nil {
		return nil, "", fmt.Errorf("list pods: %w", err)
	}
	deployments, err := client.AppsV1().Deployments(metav1.NamespaceDefault).List(ctx, selector)
	if err != nil {
		return nil, "", fmt.Errorf("list deployments: %w", err)
	}
	jobs, err := client.BatchV1().Jobs(metav1.NamespaceDefault).List(ctx, selector)
	if err != nil {
		return nil, "", fmt.Errorf("list jobs: %w", err)
	}
	for i := range deployments.Items {
		if d := &deployments.Items[i]; !complete(d) {
			return nil, "deployment " + d.Name, nil
		}
	}
	for i := range jobs.Items {
		if j := &jobs.Items[i]; !started(j) {
			return nil, "job " + j.Name, nil
		}
	}
	for i := range list.Items {
		if p := &list.Items[i]; !settled(p) {
			return nil, "pod " + p.Name, nil
		}
	}
	return list.Items, "", nil
}

func complete(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration >= d.Generation && d.Spec.Replicas != nil &&
		d.Status.Replicas == *d.Spec.Replicas
}

func started(j *batchv1.Job) bool {
	return j.Spec.Completions != nil && j.Status.Active+j.Status.Succeeded+j.Status.Failed >= *j.Spec.Completions
}

func settled(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		return true
	}
	_, c := podutil.GetPodCondition(&p.Status, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

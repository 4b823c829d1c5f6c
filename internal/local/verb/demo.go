package verb

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
)

const demoLimit = time.Minute

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
	want := podsOf(objects)
	there, err := demoPods(ctx, client)
	if err != nil {
		return err
	}
	// A pod that exists cannot be changed much: its gate cannot come back.
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Pod" &&
			slices.ContainsFunc(there, func(p corev1.Pod) bool { return p.Name == o.GetName() })
	})
	if err := applier.Apply(ctx, objects); err != nil {
		return err
	}
	pods, err := awaitSettled(ctx, client, want)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, outcome(pods))
	return err
}

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
	fmt.Fprintf(&b, "  %[1]s quota --rounds\n  %[1]s gang\n", name())
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

func podsOf(objects []*unstructured.Unstructured) (pods int) {
	fields := map[string]string{"Deployment": "replicas", "Job": "completions"}
	for _, o := range objects {
		if o.GetKind() == "Pod" {
			pods++
		} else if field, many := fields[o.GetKind()]; many {
			n, _, _ := unstructured.NestedNumberAsFloat64(o.Object, "spec", field) // the manifest is ours
			pods += int(n)
		}
	}
	return pods
}

func demoPods(ctx context.Context, client kubernetes.Interface) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: examples.DemoLabel})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return list.Items, nil
}

// openGate lets the scheduler have a pod of the demo.
func openGate(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	gated := corev1.PodSchedulingGate{Name: examples.DemoGate}
	if !slices.Contains(p.Spec.SchedulingGates, gated) {
		return nil
	}
	_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
		[]byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("remove the scheduling gate of pod %s: %w", p.Name, err)
	}
	return nil
}

// awaitSettled returns the demo's pods once that many exist and every one is running, done or refused by the scheduler.
// It removes their gates when all exist.
func awaitSettled(ctx context.Context, client kubernetes.Interface, want int) (pods []corev1.Pod, err error) {
	waiting := ""
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, demoLimit, true,
		func(ctx context.Context) (bool, error) {
			there, err := demoPods(ctx, client)
			if err != nil {
				return false, err
			}
			pods, waiting = there, fmt.Sprintf("%d of %d pods exist", len(there), want)
			if len(there) < want {
				return false, nil
			}
			for i := range there {
				if err := openGate(ctx, client, &there[i]); err != nil {
					return false, err
				}
			}
			i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return !settled(&p) })
			if i >= 0 {
				waiting = "pod " + pods[i].Name
			}
			return i < 0, nil
		})
	if err != nil {
		return nil, fmt.Errorf("wait for the demo's pods: %w: %s", err, waiting)
	}
	return pods, nil
}

func settled(p *corev1.Pod) bool {
	switch p.Status.Phase {
	case corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed:
		return true
	}
	_, c := podutil.GetPodCondition(&p.Status, corev1.PodScheduled)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

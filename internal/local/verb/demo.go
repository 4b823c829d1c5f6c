package verb

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/deploy/examples"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/local/machine"
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
	if err := awaitDevices(ctx, client, dir); err != nil {
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
	explained, shown := map[bool]string{}, map[bool]string{} // a pod that is pending, and a node; true for devices
	exclusive := map[bool]bool{}                             // the node has a pod with CPUs of its own
	devicesOn := map[string]bool{}
	batch := "" // a pod that runs in what services leave
	for i := range pods {
		devicesOn[pods[i].Spec.NodeName] = devicesOn[pods[i].Spec.NodeName] || asksForDevices(&pods[i])
	}
	for i := range pods {
		p, devices := &pods[i], asksForDevices(&pods[i])
		if p.Spec.NodeName == "" {
			pending = append(pending, p.Name)
			if first := explained[devices]; first == "" || p.Name < first {
				explained[devices] = p.Name
			}
			continue
		}
		if asksBatch(p) && (batch == "" || p.Name < batch) {
			batch = p.Name
		}
		own := p.Labels[annotation.QoSClass] == "LSE" || p.Labels[annotation.QoSClass] == "LSR"
		if shown[devices] == "" || own && !exclusive[devices] && (devices || !devicesOn[p.Spec.NodeName]) {
			shown[devices], exclusive[devices] = p.Spec.NodeName, own
		}
	}
	slices.Sort(pending)
	var b strings.Builder
	fmt.Fprintf(&b, "Demo: %d pods are placed", len(pods)-len(pending))
	if len(pending) > 0 {
		fmt.Fprintf(&b, ", %d pending (%s)", len(pending), strings.Join(pending, ", "))
	}
	b.WriteString(". Try next:\n")
	for _, devices := range []bool{false, true} {
		if pod := explained[devices]; pod != "" {
			fmt.Fprintf(&b, "  %s explain pod/%s\n", name(), pod)
		}
		if node := shown[devices]; node != "" {
			fmt.Fprintf(&b, "  %s topology node/%s\n", name(), node)
		}
	}
	fmt.Fprintf(&b, "  %[1]s quota --rounds\n  %[1]s gang\n", name())
	if batch != "" {
		fmt.Fprintf(&b, "  %[1]s top nodes -w\n  %[1]s explain pod/%[2]s\n", name(), batch)
	}
	return b.String()
}

func asksForDevices(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		for resource := range c.Resources.Requests {
			if device.IsDevice(string(resource)) {
				return true
			}
		}
		return false
	})
}

// asksBatch reports whether a pod asks for what the manager grants of what others leave.
func asksBatch(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		_, asks := c.Resources.Requests[convert.BatchCPU]
		return asks
	})
}

// awaitDevices waits until the Devices of all machines exist: a node is ready before.
func awaitDevices(ctx context.Context, client kubernetes.Interface, dir datadir.Dir) error {
	nodes, err := dir.SavedNodes()
	if err != nil {
		return err
	}
	for _, n := range nodes {
		d, _, err := machine.Parse(n.Machine)
		if err != nil || len(d.Devices(n.Name)) == 0 {
			continue // a machine that cannot be read any more has its node all the same
		}
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, demoLimit, true,
			func(ctx context.Context) (bool, error) {
				r := devicev1alpha1.Resource()
				err := client.CoreV1().RESTClient().Get().
					AbsPath("apis", r.Group, r.Version, r.Resource, n.Name).Do(ctx).Error()
				if apierrors.IsNotFound(err) {
					return false, nil
				}
				return err == nil, err
			})
		if err != nil {
			return fmt.Errorf("wait for the devices of node %s: %w", n.Name, err)
		}
	}
	return nil
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

func isGated(p *corev1.Pod) bool {
	return slices.Contains(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: examples.DemoGate})
}

// openGate lets the scheduler have a pod of the demo.
func openGate(ctx context.Context, client kubernetes.Interface, p *corev1.Pod) error {
	_, err := client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType,
		[]byte(`{"spec":{"schedulingGates":null}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("remove the scheduling gate of pod %s: %w", p.Name, err)
	}
	return nil
}

// awaitSettled returns the demo's pods once that many exist and every one is running, done or refused by the scheduler.
// Gates are removed when that is so for the pods without one.
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
			i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return !settled(&p) && !isGated(&p) })
			if i >= 0 {
				waiting = "pod " + pods[i].Name
				return false, nil
			}
			done := true
			for i := range there {
				if isGated(&there[i]) {
					if done, err = false, openGate(ctx, client, &there[i]); err != nil {
						return false, err
					}
				}
			}
			return done, nil
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
	return c != nil && c.Status == corev1.ConditionFalse && why.Refuses(c.Reason) &&
		!asksBatch(p) // nothing is granted before the first reports
}

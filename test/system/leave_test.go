package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/event"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestNodesAreLeft: a node that Tenon ran pods on and that is left has the groups and the Node of one that was left
// before its pods came. The pods go on, no other one gets CPUs there, and the node can come back.
func TestNodesAreLeft(t *testing.T) {
	t.Parallel()
	l := up(t, 1, "--machine", "hgx-h100=2")
	const never, used = "hgx-h100-0", "hgx-h100-1"
	leave := func(more ...string) string {
		t.Helper()
		c := exec.Command(os.Getenv("TENON_BIN"), append([]string{"leave", "--yes", "--wait", "1m"}, more...)...)
		c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(l.dir, "kubeconfig"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("tenon leave %v: %v\n%s", more, err, out)
		}
		return string(out)
	}
	waitFor(t, time.Minute, "the amounts of devices", func() error {
		for _, name := range []string{never, used} {
			if len(l.traces(t, name)) == 0 {
				return errors.New("node " + name + " has nothing of Tenon")
			}
		}
		return nil
	})
	leave("--node", never)

	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	create := func(name, class, node string) {
		t.Helper()
		p := pod(name, object.Class(class), object.PriorityClass("koord-prod"), object.On(node),
			object.Both("cpu", "4", "memory", "1Gi"))
		if node == "" && class == "LS" {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: used}
		}
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, class := range []string{"LSR", "LS"} {
		create("never-"+strings.ToLower(class), class, never)
		create("used-"+strings.ToLower(class), class, "")
	}
	running := func(names ...string) {
		t.Helper()
		waitFor(t, time.Minute, "pods to run", func() error {
			for _, name := range names {
				p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if p.Status.Phase != corev1.PodRunning {
					return fmt.Errorf("%s is %s: %v", name, p.Status.Phase, p.Status.ContainerStatuses)
				}
				if s := p.Status.ContainerStatuses[0]; s.RestartCount > 0 {
					t.Fatalf("%s has restarted", name)
				}
			}
			return nil
		})
	}
	all := []string{"never-lsr", "never-ls", "used-lsr", "used-ls"}
	running(all...)
	if p, err := pods.Get(t.Context(), "used-lsr", metav1.GetOptions{}); err != nil || p.Spec.NodeName != used ||
		p.Annotations[annotation.ResourceStatusKey] == "" {
		t.Fatalf("the LSR pod is on %s, %v; want CPUs on %s, the node that is not left", p.Spec.NodeName, err, used)
	}
	if cmp.Equal(l.groups(t, never), l.groups(t, used)) {
		t.Fatalf("groups of the node that is used are as the kubelet makes them: %v", l.groups(t, used))
	}
	said := leave()
	if !strings.Contains(said, "default/used-lsr") || !strings.Contains(said, "0 fail") {
		t.Errorf("tenon leave says\n%s", said)
	}
	running(all...)
	if diff := cmp.Diff(l.groups(t, never), l.groups(t, used)); diff != "" {
		t.Errorf("groups (-of a node that was left before +of one that was used):\n%s", diff)
	}
	for _, name := range []string{never, used} {
		want := []string{"condition " + event.NodeLeft.Condition(), "annotation " + annotation.LeaveKey}
		if traces := l.traces(t, name); !slices.Equal(traces, want) {
			t.Errorf("node %s has %v, want %v", name, traces, want)
		}
		for _, r := range []string{v1alpha2.Resource().Resource, devicev1alpha1.Resource().Resource} {
			expected := map[string]string{
				"devices":                devicev1alpha1.GroupVersion().String(),
				"noderesourcetopologies": v1alpha2.GroupVersion().String(),
			}[r]
			path := "/apis/" + expected + "/" + r + "/" + name
			if l.client.CoreV1().RESTClient().Get().AbsPath(path).Do(t.Context()).Error() == nil {
				t.Errorf("%s/%s is still there", r, name)
			}
		}
	}
	create("waits", "LSR", "")
	waitFor(t, time.Minute, "a refusal", func() error {
		p, err := pods.Get(t.Context(), "waits", metav1.GetOptions{})
		if err == nil && len(p.Status.Conditions) == 0 {
			err = errors.New("the scheduler has said nothing")
		}
		if err == nil && p.Spec.NodeName != "" {
			t.Fatalf("an LSR pod is on %s, which is left", p.Spec.NodeName)
		}
		return err
	})
	patch := []byte(`{"metadata":{"annotations":{"` + annotation.LeaveKey + `":null}}}`)
	if _, err := l.client.CoreV1().Nodes().Patch(t.Context(), used, "application/merge-patch+json", patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	running(append(all, "waits")...)
}

// traces are what Tenon has written into a Node.
func (l *local) traces(t *testing.T, node string) []string {
	t.Helper()
	n, err := l.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	testkit.Check(t, err)
	_, traces := convert.Clean(n, func(string) bool { return false })
	return traces
}

// groups are all values of the groups of a node's pods, by file, with the pods' names without their first part in place
// of ids. A set of all CPUs or of all memory is as good as none: a kernel does not take an empty one.
func (l *local) groups(t *testing.T, node string) map[string]string {
	t.Helper()
	list, err := l.client.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node,
	})
	testkit.Check(t, err)
	var names []string
	for i := range list.Items {
		p := &list.Items[i]
		_, class, _ := strings.Cut(p.Name, "-")
		names = append(names, "pod"+string(p.UID), class)
		for _, s := range p.Status.ContainerStatuses {
			names = append(names, strings.TrimPrefix(s.ContainerID, "tenon://"), s.Name)
		}
	}
	rename, root := strings.NewReplacer(names...), filepath.Join(l.dir, "nodes", node, "sys/fs/cgroup")
	whole := map[string]string{}
	out := map[string]string{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name := d.Name()
		if filepath.Dir(path) == root {
			whole[name] = string(text)
		}
		if name == "cpuset.cpus" || name == "cpuset.mems" {
			if string(text) == whole[name+".effective"] {
				text = nil
			}
		}
		if name != "cgroup.procs" {
			out[rename.Replace(strings.TrimPrefix(path, root))] = strings.TrimSpace(string(text))
		}
		return err
	})
	testkit.Check(t, err)
	return out
}

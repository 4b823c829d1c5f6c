package badinput

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	explanation "github.com/tenon-project/tenon/api/explanation/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// warnings keeps what the API server warns of.
type warnings struct {
	mu  sync.Mutex // guards all
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

// question is a ScheduleExplanation.
func question(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": explanation.GroupVersion().String(), "kind": explanation.Kind,
		"metadata": map[string]any{"name": "q"}, "spec": spec,
	}}
}

// TestBadInputOnARunningCluster hands a few of the cases to a real API server, which really calls the webhooks.
func TestBadInputOnARunningCluster(t *testing.T) {
	bin := os.Getenv("TENON_BIN")
	if bin == "" {
		t.Skip("NOT RUN: bad input on a running cluster: TENON_BIN does not name the built binary (make test sets it)")
	}
	dir := filepath.Join(t.TempDir(), "data")
	tenon := func(args ...string) (answer string, code int) {
		// the test's own has ended when it cleans up
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		c := exec.CommandContext(ctx, bin, args...)
		c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		err := c.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return out.String(), c.ProcessState.ExitCode()
	}
	t.Cleanup(func() {
		if answer, code := tenon("down", "--purge", "--data", dir); code != 0 {
			t.Errorf("tenon down: exit code %d: %s", code, answer)
		}
	})
	if answer, code := tenon("up", "--detach", "--data", dir, "--machine", "xeon-2s"); code != 0 {
		t.Fatalf("tenon up: exit code %d: %s", code, answer)
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	testkit.Check(t, err)
	warned := &warnings{}
	config.WarningHandler = warned
	client, err := kubernetes.NewForConfig(config)
	testkit.Check(t, err)
	says := func(answer string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(answer, w) {
				t.Errorf("got %q, want it to say %q", answer, w)
			}
		}
	}
	ctx := t.Context()

	t.Run("an LSR pod of one and a half CPUs is refused and not stored", func(t *testing.T) {
		_, err := client.CoreV1().Pods("default").Create(ctx, podFrom(t, pod(lsr(""), "1500m")), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Fatalf("got %v, want Invalid", err)
		}
		says(err.Error(), "requests[cpu]", "must be integer", "multiples of 1000m")
		if _, err := client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the pod is there: %v", err)
		}
	})
	t.Run("a node label that means nothing is warned of and the node stays", func(t *testing.T) {
		node, err := client.CoreV1().Nodes().Patch(ctx, "xeon-2s-0", types.MergePatchType,
			[]byte(`{"metadata":{"labels":{"node.koordinator.sh/cpu-bind-policy":"Bogus"}}}`), metav1.PatchOptions{})
		if err != nil || node.Labels["node.koordinator.sh/cpu-bind-policy"] != "Bogus" {
			t.Fatalf("a node must be able to carry any label: %v", err)
		}
		says(warned.text(), "node.koordinator.sh/cpu-bind-policy", `Unsupported value "Bogus"`,
			"supported None, FullPCPUsOnly, SpreadByPCPUs")
	})
	t.Run("an allocation that a user writes is refused and the pod keeps its own", func(t *testing.T) {
		good := podFrom(t, pod(lsr(""), "2"))
		good.Name = "good"
		if _, err := client.CoreV1().Pods("default").Create(ctx, good, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err := client.CoreV1().Pods("default").Patch(ctx, "good", types.MergePatchType,
			[]byte(
				`{"metadata":{"annotations":{"scheduling.koordinator.sh/resource-status":"{\"cpuset\":\"90-91\"}"}}}`),
			metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) {
			t.Fatalf("got %v, want Invalid", err)
		}
		says(err.Error(), status, "is set by the scheduler")
		var after *corev1.Pod
		if after, err = client.CoreV1().Pods("default").Get(ctx, "good", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(after.Annotations["scheduling.koordinator.sh/resource-status"], "90-91") {
			t.Errorf("the pod has %v", after.Annotations)
		}
	})
	objects, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	questions := objects.Resource(explanation.Resource()).Namespace("default")
	for name, c := range map[string]struct {
		spec map[string]any
		says []string
	}{
		"a question about no pod": {map[string]any{"ttl": "1h"}, []string{"spec.questionObjectKey: Required value"}},
		"a question about a pod without a namespace": {
			map[string]any{"questionObjectKey": "web"},
			[]string{`spec.questionObjectKey: Invalid value: "web"`, "must be NAMESPACE/NAME of one pod or one gang"},
		},
		"a question about two gangs": {
			map[string]any{"questionObjectKey": "default/a,default/b"},
			[]string{"spec.questionObjectKey", "must be NAMESPACE/NAME of one pod or one gang"},
		},
		"a question about a pod that does not exist yet": {
			map[string]any{"questionObjectKey": "default/a", "questionObjectTemplate": map[string]any{}},
			[]string{"questionObjectTemplate must not be set", "POST /apis/v1/whatif"},
		},
		"a question with a negative ttl": {
			map[string]any{"questionObjectKey": "default/a", "ttl": "-1h"}, []string{`spec.ttl: Invalid value: "-1h"`},
		},
		"a question with a ttl of a million years": {
			map[string]any{"questionObjectKey": "default/a", "ttl": "9999999999h"},
			[]string{"spec.ttl", "must be a Go duration that fits 64 bits"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := questions.Create(ctx, question(c.spec), metav1.CreateOptions{})
			if !apierrors.IsInvalid(err) {
				t.Fatalf("got %v, want Invalid", err)
			}
			says(err.Error(), c.says...)
			if _, err := questions.Get(ctx, "q", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("the question is there: %v", err)
			}
		})
	}
	t.Run("a question about a pod of another namespace is answered with the rule", func(t *testing.T) {
		_, err := questions.Create(ctx, question(map[string]any{"questionObjectKey": "kube-system/web"}),
			metav1.CreateOptions{})
		testkit.Check(t, err)
		var answer string
		testkit.Check(t, wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				o, err := questions.Get(ctx, "q", metav1.GetOptions{})
				if err == nil {
					answer, _, err = unstructured.NestedString(o.Object, "status", "failedMessage")
				}
				return answer != "", err
			}))
		says(answer, "spec.questionObjectKey", "must be in the namespace of this object", "default/web",
			`is "kube-system/web"`)
	})
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"explain of a pod that does not exist": {
			[]string{"explain", "pod/nope"},
			2,
			[]string{`pod "nope" not found in namespace "default"`},
		},
		"explain of a misspelt pod": {[]string{"explain", "godo"}, 2, []string{`did you mean "good"?`}},
		"topology of a node that does not exist": {
			[]string{"topology", "node/nope"},
			2,
			[]string{`node "nope" not found`},
		},
		"a second start on the same data": {
			[]string{"up", "--data", dir, "--machine", "xeon-2s"},
			-1,
			[]string{"already", dir},
		},
	} {
		t.Run(name, func(t *testing.T) {
			answer, code := tenon(c.args...)
			if code == 0 || c.code != -1 && code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, answer)
			}
			says(answer, c.says...)
		})
	}
}

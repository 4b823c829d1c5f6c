package system

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tenon-project/tenon/api/explanation/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// aQuestionIsAnsweredUntilItsTTL asks about a pod that does not fit, replaces the pod by one that does, and lets the
// time of the question pass.
func aQuestionIsAnsweredUntilItsTTL(t *testing.T, l *local) {
	t.Helper()
	ctx := t.Context()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(l.dir, "kubeconfig"))
	testkit.Check(t, err)
	client, err := dynamic.NewForConfig(config)
	testkit.Check(t, err)
	objects, pods := client.Resource(v1alpha1.Resource()).Namespace("default"), l.client.CoreV1().Pods("default")
	// awaitAnswer waits for a status with these beginnings of failedMessage.
	awaitAnswer := func(schedulable bool, begins, node string) {
		t.Helper()
		waitFor(t, time.Minute, fmt.Sprintf("schedulable %t, %q", schedulable, begins), func() error {
			var o v1alpha1.ScheduleExplanation
			u, err := objects.Get(ctx, "why", metav1.GetOptions{})
			if err != nil {
				return err
			}
			text, err := json.Marshal(u)
			if err == nil {
				err = json.Unmarshal(text, &o)
			}
			s := o.Status
			if err != nil {
				return err
			}
			if s.LastUpdateTime == nil || len(s.DetailedExplanation) == 0 || s.Schedulable != schedulable ||
				!strings.HasPrefix(s.FailedMessage, begins) || begins == "" && s.FailedMessage != "" {
				return fmt.Errorf("the status is in %s", text)
			}
			if placed := s.DetailedExplanation[0].ScheduleExplanation.FeasibleSchedulingResult; node != "" &&
				(len(placed) != 1 || placed[0].NodeName != node) {
				return fmt.Errorf("placed %+v", placed)
			}
			return nil
		})
	}
	_, err = pods.Create(ctx, object.Pod("asked", object.Both("cpu", "500")), metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = objects.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion().String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": "why"},
		"spec":     map[string]any{"questionObjectKey": "default/asked", "ttl": "0"},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	awaitAnswer(false, "InsufficientCPU: ", "")

	testkit.Check(t, pods.Delete(ctx, "asked", *metav1.NewDeleteOptions(0)))
	_, err = pods.Create(ctx, object.Pod("asked", object.Both("cpu", "1")), metav1.CreateOptions{})
	testkit.Check(t, err)
	awaitAnswer(true, "", "arm64-1s-0")

	_, err = objects.Patch(ctx, "why", types.MergePatchType, []byte(`{"spec":{"ttl":"1s"}}`), metav1.PatchOptions{})
	testkit.Check(t, err)
	waitFor(t, time.Minute, "the end of the question", func() error {
		_, err := objects.Get(ctx, "why", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

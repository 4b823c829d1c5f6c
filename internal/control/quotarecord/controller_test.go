package quotarecord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/control/quotarecord"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestBoundPodsWithoutRecordGetOne: of all pods, those that are bound, count in a quota and lack the record are
// written, each once. Writes that fail are made again.
func TestBoundPodsWithoutRecordGetOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = annotation.QuotaBound
		quota := object.Label("quota", "a")
		pods := []*corev1.Pod{
			object.Pod("bound", object.On("n"), quota), object.Pod("refused", object.On("n"), quota),
			object.Pod("pending", quota), object.Pod("in-no-quota", object.On("n")),
			object.Pod("recorded", object.On("n"), quota, object.Annotation(key, "b")),
			object.Pod("ended", object.On("n"), quota, object.Phase(corev1.PodSucceeded)),
		}
		client := fake.NewClientset()
		for _, p := range pods {
			if err := client.Tracker().Add(p); err != nil {
				t.Fatal(err)
			}
		}
		list := func() []*corev1.Pod {
			found, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Error(err)
			}
			var all []*corev1.Pod
			for i := range found.Items {
				all = append(all, &found.Items[i])
			}
			return all
		}
		var wrote []string
		client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			patch := a.(clienttesting.PatchAction)
			wrote = append(wrote, patch.GetName()+" "+a.GetSubresource())
			first := patch.GetName() == "refused" && !slices.Contains(wrote[:len(wrote)-1], wrote[len(wrote)-1])
			if first {
				return true, nil, errors.New("refused once")
			}
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- quotarecord.New(quotarecord.Options{
				Pods: list, Client: client,
				Record: func(p *corev1.Pod) map[string]string {
					if p.Labels["quota"] == "" {
						return nil
					}
					return map[string]string{key: p.Labels["quota"]}
				},
			}).Start(ctx)
		}()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		slices.Sort(wrote)
		if want := []string{"bound status", "refused status", "refused status"}; !slices.Equal(wrote, want) {
			t.Errorf("writes %q, want %q", wrote, want)
		}
		got := map[string]string{}
		for _, p := range list() {
			got[p.Name] = p.Annotations[key]
		}
		want := map[string]string{
			"bound": "a", "refused": "a", "pending": "", "in-no-quota": "", "recorded": "b", "ended": "",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("records %v, want %v", got, want)
		}
	})
}

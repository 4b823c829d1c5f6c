package quotarecord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/sched/quotarecord"
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
		// The writer sees what it has written, as by an informer.
		client, known := fake.NewClientset(), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		for _, p := range pods {
			if err := errors.Join(client.Tracker().Add(p), known.Add(p)); err != nil {
				t.Fatal(err)
			}
		}
		refresh := func() {
			found, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range found.Items {
				if err := known.Update(&found.Items[i]); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mu sync.Mutex // guards wrote
		var wrote []string
		written := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(slices.Values(wrote))
		}
		client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			name := a.(clienttesting.PatchAction).GetName()
			first := name == "refused" && !slices.Contains(wrote, name)
			wrote = append(wrote, name)
			if first {
				return true, nil, errors.New("refused once")
			}
			return false, nil, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended, synced, leads := make(chan struct{}), make(chan struct{}), atomic.Bool{}
		go func() {
			defer close(ended)
			quotarecord.New(quotarecord.Options{
				Pods: corelisters.NewPodLister(known), Client: client, Synced: synced,
				Leading: leads.Load,
				Record: func(p *corev1.Pod) map[string]string {
					if p.Labels["quota"] == "" {
						return nil
					}
					return map[string]string{key: p.Labels["quota"]}
				},
			}).Run(ctx)
		}()
		leads.Store(true)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if wrote := written(); len(wrote) > 0 {
			t.Errorf("writes %q before all pods are known", wrote)
		}
		leads.Store(false)
		close(synced)
		time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
		synctest.Wait()
		if wrote := written(); len(wrote) > 0 {
			t.Errorf("writes %q while another scheduler leads", wrote)
		}
		time.Sleep(5 * time.Second) //nolint:forbidigo // the clock is the bubble's; between two scans
		leads.Store(true)
		for range 6 {
			time.Sleep(10 * time.Second) //nolint:forbidigo // the clock is the bubble's
			synctest.Wait()
			refresh()
		}
		cancel()
		<-ended
		if got, want := written(), []string{"bound", "refused", "refused"}; !slices.Equal(got, want) {
			t.Errorf("writes %q, want %q", got, want)
		}
		got := map[string]string{}
		for _, o := range known.List() {
			got[o.(*corev1.Pod).Name] = o.(*corev1.Pod).Annotations[key]
		}
		want := map[string]string{
			"bound": "a", "refused": "a", "pending": "", "in-no-quota": "", "recorded": "b", "ended": "",
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("records %v, want %v", got, want)
		}
	})
}

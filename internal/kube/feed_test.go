package kube_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
)

// follow adds accounts to an informer of a kind.
func follow(a accounts.Accounts, kind string, i cache.SharedIndexInformer,
) (cache.ResourceEventHandlerRegistration, error) {
	return a.Table().Of(kind).Follow(i)
}

// plain lists and watches as an API server without streamed lists does.
type plain struct{ *cache.ListWatch }

func (plain) IsWatchListSemanticsUnSupported() bool { return true }

// The pod of a StatefulSet keeps its name. When it is deleted and recreated while no watch runs, a relist delivers one
// update from the old pod to the new one.
func TestAPodRecreatedDuringARelistLeavesNoGhost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const generations = 100
		lists := 0
		var current *corev1.Pod
		source := plain{&cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				lists++
				current = pod("web-0", fmt.Sprintf("n%d", lists%3), 2, "0-1")
				current.UID = types.UID(fmt.Sprintf("web-0-%d", lists))
				current.ResourceVersion = fmt.Sprint(lists)
				return &corev1.PodList{
					ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(lists)},
					Items:    []corev1.Pod{*current},
				}, nil
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				w := watch.NewFake()
				if lists < generations {
					go w.Error(&metav1.Status{
						Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired,
						Code: 410,
					})
				}
				return w, nil
			},
		}}
		pods := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
		nodes := cache.NewSharedIndexInformer(source, &corev1.Node{}, 0, cache.Indexers{})
		store := kube.NewStore()
		if _, err := kube.ByUID(nodes).AddEventHandler(kube.Handler(store.PutNode, func(n *corev1.Node) {
			store.RemoveNode(n.Name)
		})); err != nil {
			t.Fatal(err)
		}
		if _, err := kube.ByUID(pods).AddEventHandler(kube.Handler(store.PutPod, store.RemovePod)); err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			pods.Run(stop)
		}()
		<-time.After(2 * time.Hour) // the informer pauses for at most a minute before it lists again
		synctest.Wait()
		if lists < generations {
			t.Errorf("%d lists, want %d", lists, generations)
		}
		if got := store.Differences([]*corev1.Pod{current}); len(got) != 0 {
			t.Errorf("after %d generations the accounts hold %v", lists, got)
		}
		close(stop)
		<-done
	})
}

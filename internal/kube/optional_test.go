package kube_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAServerWithoutAResourceLooksEmptyUntilItIsUpgraded: whether the server says that it does not know the resource,
// or that the right is missing, which it checks first.
func TestAServerWithoutAResourceLooksEmptyUntilItIsUpgraded(t *testing.T) {
	t.Parallel()
	at := resourcev1.SchemeGroupVersion.WithResource("deviceclasses")
	served := []*metav1.APIResourceList{{
		GroupVersion: at.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: at.Resource}},
	}}
	for name, c := range map[string]struct {
		refusal error
		served  bool // what discovery says
		synced  bool
	}{
		"the resource is not known": {refusal: apierrors.NewNotFound(at.GroupResource(), ""), synced: true},
		"the right is missing, and the resource too": {
			refusal: apierrors.NewForbidden(at.GroupResource(), "", nil), synced: true,
		},
		"the right alone is missing": {refusal: apierrors.NewForbidden(at.GroupResource(), "", nil), served: true},
		"the server is not ready":    {refusal: apierrors.NewServiceUnavailable("starting")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
				var upgraded atomic.Bool
				client.PrependReactor("list", at.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					return !upgraded.Load(), nil, c.refusal
				})
				server := client.Discovery().(*discoveryfake.FakeDiscovery)
				if c.served {
					server.Resources = served
				}
				classes := client.ResourceV1().DeviceClasses()
				i := kube.NewOptionalInformer(server, at, classes, &resourcev1.DeviceClass{})
				// The usual handler waits by the clock of the machine.
				testkit.Check(t, i.SetWatchErrorHandler(func(*cache.Reflector, error) {}))
				go i.RunWithContext(t.Context())
				time.Sleep(time.Minute) //nolint:forbidigo // the clock is the bubble's
				synctest.Wait()
				if got := i.HasSynced(); got != c.synced || len(i.GetStore().List()) != 0 {
					t.Fatalf("synced is %v, want %v; objects %v", got, c.synced, i.GetStore().List())
				}
				upgraded.Store(true)
				time.Sleep(2 * time.Minute) //nolint:forbidigo // the clock is the bubble's
				synctest.Wait()
				if got := i.GetStore().ListKeys(); len(got) != 1 || !i.HasSynced() {
					t.Errorf("after the upgrade there are %v", got)
				}
			})
		})
	}
}

package hooks

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestAccountsHaveDevicesBeforeTheQueue: the queue asks for Devices by the name that the plugins register, gets our
// informer, and the store has each object when the queue gets its event.
func TestAccountsHaveDevicesBeforeTheQueue(t *testing.T) {
	t.Parallel()
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != "/apis/scheduling.koordinator.sh/v1alpha1/devices":
			w.WriteHeader(http.StatusNotFound)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			_, _ = w.Write([]byte(`{"kind":"DeviceList","metadata":{"resourceVersion":"1"},"items":[{"metadata":` +
				`{"name":"n"},"spec":{"devices":[{"type":"gpu","id":"GPU-0","health":true}]}}]}`))
		}
	}))
	t.Cleanup(served.Close)
	client, err := kube.NewClient(&rest.Config{Host: served.URL})
	testkit.Check(t, err)
	store := kube.NewStore()
	none := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	others := dynamicinformer.NewDynamicSharedInformerFactory(none, 0)
	factory := Resources(others, accounts.Accounts{Nodes: store}.Table(), client,
		func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return i })
	name, _ := schema.ParseResourceArg("devices.v1alpha1.scheduling.koordinator.sh")
	known := make(chan bool, 1)
	if _, err := factory.ForResource(*name).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { known <- store.View("n").Facts().Devices != nil },
	}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.Start(stop)
	if !factory.WaitForCacheSync(stop)[*name] {
		t.Fatal("the cache of Devices does not sync")
	}
	if !<-known {
		t.Error("the queue gets a Device before the account")
	}
}

// TestKindsOfDevicesThatTheAPIServerLacksAreEmpty: upstream waits for each informer that it asked for, and would not
// start on an API server of a release without the kind.
func TestKindsOfDevicesThatTheAPIServerLacksAreEmpty(t *testing.T) {
	t.Parallel()
	served := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(served.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: served.URL})
	testkit.Check(t, err)
	watched := map[string]int{}
	watch := func(what string) Watch {
		return func(i cache.SharedIndexInformer) cache.SharedIndexInformer { watched[what]++; return i }
	}
	factory := Informers(client, informers.NewSharedInformerFactory(client, 0), accounts.Accounts{}.Table(),
		watch("accounts"), watch("claims"))
	if watched["accounts"] != 2 || watched["claims"] != 4 {
		t.Errorf("watched are %v, want pods and nodes, and what claims need", watched)
	}
	devices := factory.Resource().V1()
	kinds := map[string]cache.SharedIndexInformer{
		"claims": devices.ResourceClaims().Informer(), "slices": devices.ResourceSlices().Informer(),
		"classes": devices.DeviceClasses().Informer(), "taint rules": devices.DeviceTaintRules().Informer(),
	}
	for name, kind := range kinds {
		go kind.Run(t.Context().Done())
		if !cache.WaitFor(t.Context(), name, kind.HasSyncedChecker()) || len(kind.GetStore().List()) != 0 {
			t.Errorf("%s: the cache does not sync as empty", name)
		}
	}
}

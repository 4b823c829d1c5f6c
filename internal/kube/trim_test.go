package kube

import (
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
)

func TestAWatchThatIsStoppedWithAnEventAtHandLeavesNothingRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails when a goroutine is left
		source := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		w := trim(source, func(*unstructured.Unstructured) runtime.Object {
			return &v1alpha2.NodeResourceTopology{}
		})
		source.Add(&unstructured.Unstructured{})
		source.Modify(&unstructured.Unstructured{})
		if e := <-w.ResultChan(); e.Type != watch.Added {
			t.Errorf("got %s, want the first event", e.Type)
		} else if _, ok := e.Object.(*v1alpha2.NodeResourceTopology); !ok {
			t.Errorf("got a %T, want it trimmed", e.Object)
		}
		synctest.Wait()
		w.Stop()
		w.Stop() // as reflectors may
		synctest.Wait()
		if _, open := <-w.ResultChan(); open {
			t.Error("the channel must be closed after Stop")
		}
	})
}

func TestPodsThatTenonBoundAreNotNews(t *testing.T) {
	annotations := map[string]string{annotation.PodCPUAllocsKey: annotation.PodCPUAllocs{
		{Namespace: "a", Name: "ours", UID: "1", CPUSet: "0"},
		{Namespace: "a", Name: "kubelets", UID: "2", CPUSet: "1", ManagedByKubelet: true},
	}.String()}
	keepKubeletPins(annotations)
	got, _, err := annotation.ParsePodCPUAllocs(annotations[annotation.PodCPUAllocsKey])
	if err != nil || len(got) != 1 || got[0].Name != "kubelets" {
		t.Errorf("got %v, %v; want the kubelet's pod alone", got, err)
	}
	broken := map[string]string{annotation.PodCPUAllocsKey: "{"}
	if keepKubeletPins(broken); broken[annotation.PodCPUAllocsKey] != "{" {
		t.Error("an invalid value must be kept, so that it can be reported")
	}
}

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/tenon-project/tenon/api/nodeinfo/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
)

// foreign is an object as Volcano's exporter writes it: zeros are left out.
const foreign = `{"apiVersion":"nodeinfo.volcano.sh/v1alpha1","kind":"Numatopology","metadata":{"name":"n0"},"spec":{
 "policies":{"CPUManagerPolicy":"static","TopologyManagerPolicy":"best-effort"},"resReserved":{"cpu":"2"},
 "numares":{"cpu":{"allocatable":"0-15,18-31","capacity":32}},
 "cpuDetail":{"0":{},"1":{"core":1},"16":{"numa":1,"socket":1}},
 "podAllocations":[{"uid":"u","containerAllocations":[{"name":"c","allocations":{"cpu":"16-17"}}]}]}}`

func TestObjectsOfVolcanoAreRead(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	testkit.Check(t, v1alpha1.AddToScheme(scheme))
	object, kind, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode([]byte(foreign), nil, nil)
	testkit.Check(t, err)
	got, ok := object.(*v1alpha1.Numatopology)
	if !ok || kind.GroupVersion() != v1alpha1.GroupVersion() {
		t.Fatalf("decoded %T, %s", object, kind)
	}
	want := v1alpha1.NumatopoSpec{
		Policies: map[string]string{
			v1alpha1.CPUManagerPolicy:      "static",
			v1alpha1.TopologyManagerPolicy: "best-effort",
		},
		ResReserved: map[string]string{"cpu": "2"},
		NumaResMap:  map[string]v1alpha1.ResourceInfo{"cpu": {Allocatable: "0-15,18-31", Capacity: 32}},
		CPUDetail:   map[string]v1alpha1.CPUInfo{"0": {}, "1": {CoreID: 1}, "16": {NUMANodeID: 1, SocketID: 1}},
		PodAllocations: []v1alpha1.PodAllocation{{UID: "u", ContainerAllocations: []v1alpha1.ContainerAllocation{
			{Name: "c", Allocations: map[string]string{"cpu": "16-17"}},
		}}},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if r := v1alpha1.Resource().String(); r != "nodeinfo.volcano.sh/v1alpha1, Resource=numatopologies" {
		t.Errorf("Resource() = %s", r)
	}
}

func TestNoZeroIsDropped(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(v1alpha1.NumatopoSpec{
		NumaResMap: map[string]v1alpha1.ResourceInfo{"cpu": {}}, CPUDetail: map[string]v1alpha1.CPUInfo{"0": {}},
	})
	testkit.Check(t, err)
	const want = `{"numares":{"cpu":{"allocatable":"","capacity":0}},"cpuDetail":{"0":{"numa":0,"socket":0,"core":0}}}`
	if string(text) != want {
		t.Errorf("encoded %s, want %s", text, want)
	}
}

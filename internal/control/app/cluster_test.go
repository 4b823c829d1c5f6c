package app

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// TestRoomCountsThePodsOfTheNodeAndTheirTrustedAllocations: what a pod of a foreign scheduler requests counts, and what
// it says to hold does not.
func TestRoomCountsThePodsOfTheNodeAndTheirTrustedAllocations(t *testing.T) {
	t.Parallel()
	config := &rest.Config{Host: "http://cluster.invalid"}
	c, err := newCluster(config, kubernetes.NewForConfigOrDie(config), kube.NewQuotas(time.Now),
		convert.NewSchedulers("tenon-scheduler"), "tenon-system")
	testkit.Check(t, err)
	pod := func(name, node, scheduler string) *corev1.Pod {
		return object.Pod(name, object.UID(name), object.On(node), object.Class("LS"), object.Scheduler(scheduler),
			object.Requests("cpu", "2", "memory", "1Gi"), object.Annotation(annotation.ResourceStatusKey,
				`{"numaNodeResources":[{"node":0,"resources":{"cpu":"2","memory":"1Gi"}}]}`))
	}
	resized := pod("resized", "n", "tenon-scheduler")
	ended := pod("ended", "n", "tenon-scheduler")
	ended.Status.Phase = corev1.PodSucceeded
	for _, p := range []*corev1.Pod{
		resized, ended, pod("beside", "n", "tenon-scheduler"), pod("foreign", "n", "volcano"),
		pod("elsewhere", "m", "tenon-scheduler"),
	} {
		testkit.Check(t, c.pods.GetIndexer().Add(p))
	}
	testkit.Check(t, c.nodes.GetStore().Add(object.Node("n", nil, "cpu", "16", "memory", "64Gi")))
	testkit.Check(t, c.topologies.GetStore().Add(object.Topology("n", grid.Worked().Build(t), nil)))
	testkit.Check(t, c.store.Configure(quota.Config{}, quota.Rules{}))
	most := corev1.ResourceList{"cpu": resource.MustParse("9")}
	c.store.PutQuota(object.Quota("default/team", corev1.ResourceList{}, most))
	c.reserved.Profile = "tenon-scheduler"
	r, err := kube.ReadReservation([]byte(`{"metadata":{"name":"r","uid":"reserved","annotations":{"` +
		annotation.ResourceStatusKey + `":"{\"cpuset\":\"0-2\"}"}},"spec":{"owners":[{"object":{"name":"later"}}],` +
		`"template":{"metadata":{"labels":{"koordinator.sh/qosClass":"LSR","` + annotation.QuotaName +
		`":"team"}},"spec":{"containers":[{"resources":` +
		`{"requests":{"cpu":"3"},"limits":{"cpu":"3"}}}]}}},"status":{"phase":"Available","nodeName":"n"}}`))
	testkit.Check(t, err)
	c.reserved.Put(r)
	if r, known := c.store.Report("team"); !known || r.Used["cpu"] != 3000 {
		t.Errorf("the quota of the Reservation uses %+v, want the 3 CPUs that are reserved", r.Used)
	}
	room := c.room(resized)
	if others, reserved := room.Others.Cpu().Value(), room.Reserved.Cpu().Value(); others != 4 || reserved != 3 {
		t.Errorf("other pods of the node request %d CPUs, %d are reserved, want 4 and 3", others, reserved)
	}
	user := pod("user", "n", "tenon-scheduler")
	user.Annotations[annotation.ReservationAllocatedKey] = `{"name":"r","uid":"reserved"}`
	if room := c.room(user); room.Own.Cpu().Value() != 3 || !room.Reserved.Cpu().IsZero() {
		t.Errorf("a pod of the Reservation has %v of it to grow into, %v are kept", room.Own, room.Reserved)
	}
	if got := room.Account.CPUsOf("reserved"); got.Len() != 3 {
		t.Errorf("%d CPUs are reserved, want 3", got.Len())
	}
	for name, want := range map[string]bool{
		"resized": true, "beside": true, "foreign": false, "elsewhere": false, "ended": false,
	} {
		if _, held := room.Account.Entry(name); held != want {
			t.Errorf("the account of the node has pod %s: %t, want %t", name, held, want)
		}
	}
}

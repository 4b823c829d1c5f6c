package coscheduling_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/domain"
	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

const inOneBlock = `{"gatherStrategy":[{"layer":"Block","strategy":"MustGather"}]}`

// TestANodeThatComesIntoADomainWakesAGang that asks for domains, and no other.
func TestANodeThatComesIntoADomainWakesAGang(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	together := member("together", "together", "1")
	together.Annotations[annotation.GangNetworkTopology] = inOneBlock
	apart, plain := member("apart", "apart", "1"), member("plain", "", "")
	for _, pod := range []*corev1.Pod{together, apart, plain} {
		gangs.PutPod(pod)
	}
	events, err := p.EventsToRegister(t.Context())
	testkit.Check(t, err)
	node := func(block string) *corev1.Node { return object.Node("n", map[string]string{"block": block}) }
	asked := 0
	for _, e := range events {
		if e.Event.Resource != fwk.Node {
			continue
		}
		asked++
		for name, c := range map[string]struct {
			pod      *corev1.Pod
			was, now any
			want     fwk.QueueingHint
		}{
			"a new node":             {together, nil, node("a"), fwk.Queue},
			"another label":          {together, node("a"), node("b"), fwk.Queue},
			"the same labels":        {together, node("a"), node("a"), fwk.QueueSkip},
			"a gang without domains": {apart, nil, node("a"), fwk.QueueSkip},
			"a pod without a gang":   {plain, nil, node("a"), fwk.QueueSkip},
		} {
			if got, err := e.QueueingHintFn(klog.Background(), c.pod, c.was, c.now); got != c.want || err != nil {
				t.Errorf("%s: got %v, %v, want %v", name, got, err, c.want)
			}
		}
	}
	if asked != 1 {
		t.Errorf("%d kinds of events of nodes", asked)
	}
}

// TestTheConditionNamesTheDomains as data.
func TestTheConditionNamesTheDomains(t *testing.T) {
	t.Parallel()
	p, gangs := newPlugin(t)
	network := &devicev1alpha1.ClusterNetworkTopology{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	network.Spec.NetworkTopologySpec = []devicev1alpha1.NetworkLayer{
		{TopologyLayer: "Block", LabelKey: []string{"block"}},
	}
	gangs.PutNetwork(network)
	pod := member("m", "g", "1")
	pod.Annotations[annotation.GangNetworkTopology] = inOneBlock
	gangs.PutPod(pod)
	plan, _, _ := gangs.Begin(pod)
	cpu := why.Finding{Reason: why.Reason{Code: why.InsufficientCPU}}
	conclude(gangs, plan.Members, nil, gang.Failure{UID: "uid-m", Cause: cpu, Tried: gang.Tried{
		Rule: domain.Rule{Layer: "Block", Must: true}, Domains: 1, Many: 3, Best: "b2",
	}}, time.Unix(1, 0))
	var refused interface{ Message() string }
	if err := p.Waiting(pod).AsError(); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	const want = `{"code":"GangSiblingFailed","gang":"ns/g","need":1,"placed":0,"rootCause":{"pod":"ns/m",` +
		`"code":"InsufficientCPU"},"domains":{"of":"Block","many":3,"tried":1,"best":"b2"}}`
	if got := refused.Message(); !strings.HasSuffix(got, want) {
		t.Errorf("got %s\nwant %s at the end", got, want)
	}
}

package app

import (
	"context"
	gojson "encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/status"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

// knownInput is a source of a topology alone.
type knownInput struct {
	source
	mu sync.Mutex // guards in
	in probe.Input
}

func (k *knownInput) isSynced() bool { return true }

func (k *knownInput) fullInput() probe.Input {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.in
}

// TestTheTopologyIsPublishedOnceTheNodeIsKnown: not before, and not again while nothing changes.
func TestTheTopologyIsPublishedOnceTheNodeIsKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := grid.Machine{Arch: "amd64"}.Build(t)
		client, clocks := fake.NewClientset(), clock.RealClock{}
		objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{v1alpha2.Resource(): "NodeResourceTopologyList"})
		pause := func(d time.Duration) { time.Sleep(d); synctest.Wait() } //nolint:forbidigo // the clock is the bubble's
		applies := 0
		objects.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			applies++
			u := &unstructured.Unstructured{}
			if err := gojson.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &u.Object); err != nil {
				return true, nil, err
			}
			u.SetUID("nrt")
			u.SetResourceVersion("1")
			return true, u, objects.Tracker().Create(v1alpha2.Resource(), u, "")
		})
		known := &knownInput{in: probe.Input{
			NodeName: "n0", Machine: m, Mode: annotation.ModeOwn, Writer: "tenon-agent/test",
		}}
		metrics := status.NewMetrics()
		reporter := status.New(status.Options{
			Client: client, Node: "n0", Agent: &Agent{}, Metrics: metrics, Clock: clocks,
		})
		p, err := newPublisher(t.Context(), publisherOptions{
			Node: "n0", Boot: "boot", Version: v1alpha2.GroupVersion(),
			Source: known,
			API: newAPI(apiOptions{
				client: client, dynamic: objects, node: "n0", status: reporter, metrics: metrics, clock: clocks,
			}),
			Dynamic: objects, Dir: statedir.Of(host.Root{Dir: t.TempDir()}), Status: reporter, Clock: clocks,
		})
		testkit.Check(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for _, part := range p.Parts() {
			running.Go(func() {
				if err := part(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		pause(time.Second)
		if !p.Synced() {
			t.Error("the absence of the object is not known after 1 s")
		}
		p.Begin()
		pause(time.Minute)
		if _, published := p.Age(); published || applies != 0 {
			t.Errorf("published: %v, %d writes without a Node", published, applies)
		}
		known.mu.Lock()
		known.in.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n0", UID: "u"}}
		known.mu.Unlock()
		p.Changed()
		pause(time.Minute)
		p.Changed()
		pause(time.Minute)
		if _, published := p.Age(); !published || applies != 1 || p.Published(annotation.TopologyMode) != "Own" {
			t.Errorf("published: %v, %d writes, mode %q; want one write of the mode Own", published, applies,
				p.Published(annotation.TopologyMode))
		}
		cancel()
		running.Wait()
	})
}

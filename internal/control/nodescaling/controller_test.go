package nodescaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	reservation "github.com/tenon-project/tenon/api/reservation/v1alpha1"
	"github.com/tenon-project/tenon/internal/kube/convert"
)

// world is an API server with one node, and a controller that may be replaced by another one.
type world struct {
	nodes, topologies, devices, reservations *fcache.FakeControllerSource

	mu      sync.Mutex // guards the rest
	node    *corev1.Node
	version int
	writes  int
	tries   int                  // of writes of annotations
	fails   error                // of the next write
	meets   func(n *corev1.Node) // what another writer does just before the next write
	restart func(protects bool)  // ends the controller and starts another one
}

func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			nodes: fcache.NewFakeControllerSource(), topologies: fcache.NewFakeControllerSource(),
			devices: fcache.NewFakeControllerSource(), reservations: fcache.NewFakeControllerSource(),
		}
		w.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "0"}}
		w.node.Status.NodeInfo.BootID = "second"
		w.nodes.Add(w.node)
		client := fake.NewClientset()
		client.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, w.write(a.(clienttesting.PatchActionImpl))
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		follow := func(source *fcache.FakeControllerSource, kind runtime.Object, i cache.Indexers,
		) cache.SharedIndexInformer {
			informer := cache.NewSharedIndexInformer(source, kind, 0, i)
			running.Go(func() { informer.RunWithContext(ctx) })
			cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
			return informer
		}
		o := Options{
			Nodes: follow(w.nodes, &corev1.Node{}, nil), Devices: follow(w.devices, &devicev1alpha1.Device{}, nil),
			Topologies:   follow(w.topologies, &v1alpha2.NodeResourceTopology{}, nil),
			Reservations: follow(w.reservations, &reservation.Reservation{}, IndexReservations()), Client: client,
		}
		synctest.Wait() // a source refuses to watch from its version 0 what was added before
		end := func() {}
		w.restart = func(protects bool) {
			end()
			synctest.Wait()
			own, cancel := context.WithCancel(ctx)
			end, o.Protect = cancel, protects
			running.Go(func() {
				if err := New(o).Start(own); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		w.restart(true)
		f(w)
		end()
		stop()
		running.Wait()
		for _, s := range []*fcache.FakeControllerSource{w.nodes, w.topologies, w.devices, w.reservations} {
			s.Shutdown()
		}
	})
}

// change is another writer of the node.
func (w *world) change(f func(n *corev1.Node)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(f)
}

func (w *world) put(f func(n *corev1.Node)) {
	w.version++
	w.node = w.node.DeepCopy()
	w.node.ResourceVersion = fmt.Sprint(w.version)
	f(w.node)
	w.nodes.Modify(w.node)
}

// write does what an API server does with the two patches that there are.
func (w *world) write(a clienttesting.PatchActionImpl) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if meets := w.meets; meets != nil {
		w.meets = nil
		w.put(meets)
	}
	if err := w.fails; err != nil {
		w.fails = nil
		return err
	}
	var said corev1.Node
	if err := json.Unmarshal(a.GetPatch(), &said); err != nil || said.UID != "u" {
		return errors.Join(err, errors.New("not of this node"))
	}
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
	if a.GetPatchType() == types.MergePatchType {
		if said.ResourceVersion != w.node.ResourceVersion {
			return conflict
		}
		w.writes++
		w.put(func(n *corev1.Node) { n.Spec.Taints = said.Spec.Taints })
		return nil
	}
	w.tries++
	own := convert.Owned(w.node, convert.ScalingManager, "", "f:metadata", "f:annotations")
	for key, value := range said.Annotations {
		if was, found := w.node.Annotations[key]; found && was != value && !slices.Contains(own, key) {
			return conflict
		}
	}
	differs := func(key string) bool { return w.node.Annotations[key] != said.Annotations[key] }
	if slices.Equal(own, slices.Sorted(maps.Keys(said.Annotations))) && !slices.ContainsFunc(own, differs) {
		return nil // it is as it was: a cache has yet to show the last write
	}
	w.writes++
	w.put(func(n *corev1.Node) {
		fields := map[string]any{}
		for _, key := range own {
			delete(n.Annotations, key)
		}
		if n.Annotations == nil {
			n.Annotations = map[string]string{}
		}
		for key, value := range said.Annotations {
			n.Annotations[key], fields["f:"+key] = value, map[string]any{}
		}
		raw, _ := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:annotations": fields}})
		n.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: a.PatchOptions.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
			FieldsV1: metav1.NewFieldsV1(string(raw)),
		}}
	})
	return nil
}

// shown is what the node has: the keys of its taints, and those of its annotations that are "true".
func (w *world) shown() string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, t := range w.node.Spec.Taints {
		all = append(all, "taint "+t.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(w.node.Annotations)) {
		all = append(all, key+"="+w.node.Annotations[key])
	}
	return strings.Join(all, " ")
}

func topology(boot string) *v1alpha2.NodeResourceTopology {
	t := &v1alpha2.NodeResourceTopology{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if boot != "" {
		t.Annotations = map[string]string{annotation.ReportKey: `{"gen":1,"boot":"` + boot + `"}`}
	}
	return t
}

func TestTheStartupTaint(t *testing.T) {
	t.Parallel()
	device := &devicev1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	full := device.DeepCopy()
	full.Spec.Devices = make([]devicev1alpha1.DeviceInfo, 1)
	for name, c := range map[string]struct {
		value    string
		topology *v1alpha2.NodeResourceTopology
		device   *devicev1alpha1.Device
		stays    bool
	}{
		"nothing is reported":                   {"", nil, full, true},
		"the machine is reported":               {"", topology("second"), nil, false},
		"of the boot before":                    {"", topology("first"), nil, true},
		"by another program":                    {"", topology(""), nil, true},
		"devices are awaited and not reported":  {"devices", topology("second"), nil, true},
		"devices are awaited and there is none": {"devices", topology("second"), device, true},
		"devices are awaited and reported":      {"devices", topology("second"), full, false},
		"devices are reported and no machine":   {"devices", nil, full, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				w.change(func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{
						{Key: "own", Effect: "NoExecute"},
						{Key: annotation.StartupTaint, Value: c.value, Effect: "NoSchedule"},
					}
				})
				if c.topology != nil {
					w.topologies.Add(c.topology.DeepCopy())
				}
				if c.device != nil {
					w.devices.Add(c.device.DeepCopy())
				}
				want := "taint own"
				if c.stays {
					want += " taint " + annotation.StartupTaint
				}
				if got := w.shown(); got != want {
					t.Errorf("the node has %q, want %q", got, want)
				}
			})
		})
	}
}

// TestATaintThatAnotherWriterSetsStays: between what the controller has read and its write.
func TestATaintThatAnotherWriterSetsStays(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.meets = func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "late"}) }
		w.change(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: annotation.StartupTaint}} })
		w.topologies.Add(topology("second"))
		time.Sleep(time.Second) //nolint:forbidigo // in synctest's time, the write is tried again
		if got := w.shown(); got != "taint late" || w.writes != 1 {
			t.Errorf("the node has %q after %d writes", got, w.writes)
		}
	})
}

// held is a Reservation on the node.
func held(phase reservation.ReservationPhase, node string) *reservation.Reservation {
	r := &reservation.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "r"}}
	r.Status.Phase, r.Status.NodeName = phase, node
	return r
}

const kept = annotation.ScaleDownDisabled + "=true " + annotation.DoNotDisrupt + "=true"

func TestNodesWithReservationsAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase reservation.ReservationPhase
		node  string
		want  string
	}{
		"it holds capacity": {reservation.ReservationAvailable, "n", kept},
		"on another node":   {reservation.ReservationAvailable, "m", ""},
		"it is pending":     {reservation.ReservationPending, "", ""},
		"it waits for pods": {reservation.ReservationWaiting, "n", ""},
		"it was used":       {reservation.ReservationSucceeded, "n", ""},
		"it has failed":     {reservation.ReservationFailed, "n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				w.reservations.Add(held(c.phase, c.node))
				if got := w.shown(); got != c.want {
					t.Errorf("the node has %q, want %q", got, c.want)
				}
				w.reservations.Delete(held(c.phase, c.node))
				if got := w.shown(); got != "" {
					t.Errorf("without the Reservation the node has %q", got)
				}
			})
		})
	}
}

// TestOnlyOwnAnnotationsAreRemoved: also by a controller that has not set them, and by one that is to protect nothing.
func TestOnlyOwnAnnotationsAreRemoved(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.restart(false)
		w.reservations.Add(held(reservation.ReservationAvailable, "n"))
		if got := w.shown(); got != "" || w.writes != 0 {
			t.Errorf("switched off, the node has %q after %d writes", got, w.writes)
		}
		w.fails = errors.New("not now") // the controller ends before it has written
		w.restart(true)
		w.restart(true)
		if got := w.shown(); got != kept {
			t.Errorf("the node has %q, want %q", got, kept)
		}
		w.change(func(n *corev1.Node) { n.Annotations["example.com/a"] = "b" })
		want := strings.Replace(kept, " ", " example.com/a=b ", 1)
		if got := w.shown(); got != want || w.writes != 1 {
			t.Errorf("the node has %q after %d writes", got, w.writes)
		}
		w.restart(false)
		if got := w.shown(); got != "example.com/a=b" || w.writes != 2 {
			t.Errorf("switched off again, the node has %q after %d writes", got, w.writes)
		}
		w.change(func(n *corev1.Node) { n.Annotations[annotation.DoNotDisrupt] = "false" })
		w.restart(true)
		w.restart(false)
		if got := w.shown(); got != "example.com/a=b "+annotation.DoNotDisrupt+"=false" {
			t.Errorf("an admin has decided, and the node has %q", got)
		}
	})
}

// TestAnnotationsOfAnotherWriterAreTriedOnce: Nodes change often. When the other value changes, or is gone, the node is
// looked at again.
func TestAnnotationsOfAnotherWriterAreTriedOnce(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		set := func(value string) {
			w.change(func(n *corev1.Node) { n.Annotations = map[string]string{annotation.DoNotDisrupt: value} })
		}
		set("false")
		synctest.Wait()
		w.reservations.Add(held(reservation.ReservationAvailable, "n"))
		expect := func(when, shown string, tries int) {
			t.Helper()
			if got := w.shown(); got != shown || w.tries != tries {
				t.Errorf("%s: the node has %q after %d tries, want %q after %d", when, got, w.tries, shown, tries)
			}
		}
		expect("at first", annotation.DoNotDisrupt+"=false", 1)
		for range 3 {
			w.change(func(n *corev1.Node) { n.Status.Phase = "seen" })
		}
		expect("after other changes", annotation.DoNotDisrupt+"=false", 1)
		set("never")
		expect("with another value", annotation.DoNotDisrupt+"=never", 2)
		w.reservations.Delete(held(reservation.ReservationAvailable, "n"))
		w.reservations.Add(held(reservation.ReservationAvailable, "n"))
		expect("with another Reservation", annotation.DoNotDisrupt+"=never", 2)
		w.change(func(n *corev1.Node) { n.Annotations = nil })
		expect("without the value", kept, 3)
	})
}

package quotastatus_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/internal/control/quotastatus"
	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	testobject "github.com/tenon-project/tenon/internal/testkit/object"
)

// world is quotas, their objects, and an API server that a controller writes to.
type world struct {
	mu      sync.Mutex // held by the test, except while time passes
	events  *events.FakeRecorder
	reports map[string]quota.Report
	objects map[string]*v1alpha1.ElasticQuota
	wrong   []string // with all quotas
	writes  []write
	fails   error
}

type write struct {
	at         time.Time
	name, path string
}

func (w *world) quotas() []quota.Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.reports))
}

func (w *world) problems(string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrong
}

func (w *world) object(group, namespace, name string) *v1alpha1.ElasticQuota {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[name]; o != nil && o.GroupVersionKind().Group == group && o.Namespace == namespace {
		return o
	}
	return nil
}

// add makes a quota, and its object in a group unless that is empty.
func (w *world) add(group, name string) {
	w.reports[name] = quota.Report{Name: name, Namespace: "team", Group: group}
	if group != "" {
		o := &v1alpha1.ElasticQuota{}
		o.SetGroupVersionKind(v1alpha1.Resource(group).GroupVersion().WithKind("ElasticQuota"))
		o.Namespace, o.Name, o.UID, o.ResourceVersion = "team", name, types.UID(name), "1"
		o.Labels, o.Annotations = map[string]string{"mine": "yes"}, map[string]string{"mine": "yes"}
		o.Spec.Max = testobject.List("cpu", "8")
		w.objects[name] = o
	}
}

// use is a report with the same amount of cpu in everything.
func (w *world) use(name string, milli int64) {
	all := amount.List{"cpu": milli}
	r := w.reports[name]
	r.Used, r.Runtime, r.Request, r.Passed = all, all, all, all
	w.reports[name] = r
}

// run starts a controller on the world for as long as f runs.
func run(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			reports: map[string]quota.Report{}, objects: map[string]*v1alpha1.ElasticQuota{},
			events: events.NewFakeRecorder(100),
		}
		client := fake.NewSimpleDynamicClient(runtime.NewScheme())
		client.PrependReactor("patch", "elasticquotas", w.patch)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		c := quotastatus.New(quotastatus.Options{
			Quotas: w.quotas, Problems: w.problems, Object: w.object, Client: client, Events: w.events,
			Writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes"}, []string{"outcome"}),
		})
		go func() { done <- c.Start(ctx) }()
		w.mu.Lock()
		f(w)
		w.mu.Unlock()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Start = %v", err)
		}
	})
}

// patch is the API server: the community group has status apart.
func (w *world) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := action.(clienttesting.PatchAction)
	w.writes = append(w.writes, write{time.Now(), p.GetName(), p.GetSubresource()})
	if w.fails != nil || w.objects[p.GetName()] == nil {
		return true, nil, cmp.Or(w.fails, error(apierrors.NewNotFound(p.GetResource().GroupResource(), p.GetName())))
	}
	old := w.objects[p.GetName()]
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(old)
	if err != nil {
		return true, nil, err
	}
	var change map[string]any
	if err := json.Unmarshal(p.GetPatch(), &change); err != nil {
		return true, nil, err
	}
	merge(before, change)
	object := &v1alpha1.ElasticQuota{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(before, object); err != nil {
		return true, nil, err
	}
	if p.GetResource().Group == v1alpha1.CommunityGroupName {
		if p.GetSubresource() == "status" {
			object.ObjectMeta = old.ObjectMeta
		} else {
			object.Status = old.Status
		}
	}
	version, err := strconv.Atoi(old.ResourceVersion)
	if err != nil {
		return true, nil, err
	}
	object.ResourceVersion = strconv.Itoa(version + 1)
	w.objects[p.GetName()] = object
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	return true, &unstructured.Unstructured{Object: content}, err
}

// merge is RFC 7386 of objects.
func merge(into, change map[string]any) {
	for key, value := range change {
		switch inner, isObject := value.(map[string]any); {
		case value == nil:
			delete(into, key)
		case isObject:
			if _, known := into[key].(map[string]any); !known {
				into[key] = map[string]any{}
			}
			merge(into[key].(map[string]any), inner)
		default:
			into[key] = value
		}
	}
}

func (w *world) later(d time.Duration) {
	w.mu.Unlock()
	time.Sleep(d) //nolint:forbidigo // the clock is the bubble's
	synctest.Wait()
	w.mu.Lock()
}

// TestAnObjectSaysWhatItsQuotaIs, whatever it said before.
//
// Q1: status.used is wrong or empty.
func TestAnObjectSaysWhatItsQuotaIs(t *testing.T) {
	t.Parallel()
	for _, group := range v1alpha1.Groups() {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				w.add(group, "q")
				w.objects["q"].Status.Used = testobject.List("gone", "1")
				w.reports["q"] = quota.Report{
					Name: "q", Namespace: "team", Group: group,
					Used: amount.List{"cpu": 1500, "memory": 2 << 30}, Runtime: amount.List{"cpu": 4000},
					Request: amount.List{"cpu": 3000}, Passed: amount.List{"cpu": 5000},
					NonPreemptibleUsed: amount.List{"nvidia.com/gpu": 3},
				}
				w.later(2 * time.Second)
				o := w.objects["q"]
				used := o.Status.Used
				if len(used) != 2 || used.Cpu().String() != "1500m" || used.Memory().String() != "2Gi" {
					t.Errorf("used = %v", used)
				}
				for key, want := range map[string]string{
					annotation.QuotaRuntime:            `{"cpu":"4"}`,
					annotation.QuotaChildRequest:       `{"cpu":"3"}`,
					annotation.QuotaRequest:            `{"cpu":"5"}`, // lifted to min
					annotation.QuotaNonPreemptibleUsed: `{"nvidia.com/gpu":"3"}`,
					annotation.QuotaAllocated:          `{}`,
					"mine":                             "yes",
				} {
					if got := o.Annotations[key]; got != want {
						t.Errorf("annotation %s = %s, want %s", key, got, want)
					}
				}
				if o.Labels["mine"] != "yes" || o.Spec.Max.Cpu().String() != "8" {
					t.Errorf("fields of users were changed: %+v", o)
				}
				n := len(w.writes)
				if want := map[string]int{v1alpha1.GroupName: 1, v1alpha1.CommunityGroupName: 2}[group]; n != want {
					t.Errorf("%d writes: %+v; want %d", n, w.writes, want)
				}
				w.later(10 * time.Minute)
				if len(w.writes) > n {
					t.Errorf("written again without a change: %+v", w.writes[n:])
				}
				other := w.objects["q"].DeepCopy() // by another writer
				other.ResourceVersion, other.Annotations[annotation.QuotaRuntime] = "7", "{}"
				w.objects["q"] = other
				w.later(2 * time.Second)
				if got := w.objects["q"].Annotations[annotation.QuotaRuntime]; got != `{"cpu":"4"}` {
					t.Errorf("runtime = %s after another writer", got)
				}
			})
		})
	}
}

func TestAQuotaWithoutObjectIsNotWritten(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.add("", quota.Default)
		w.use(quota.Default, 1000)
		w.add(v1alpha1.GroupName, "removed")
		w.use("removed", 1)
		w.later(2 * time.Second)
		w.use("removed", 2)
		delete(w.objects, "removed")
		delete(w.reports, "removed")
		w.later(2 * time.Second)
		if len(w.writes) != 1 {
			t.Errorf("writes = %+v, want the one while the object was there", w.writes)
		}
	})
}

func TestAFailedWriteIsRepeatedOnceASecond(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.add(v1alpha1.GroupName, "q")
		w.use("q", 1000)
		w.fails = errors.New("unavailable")
		w.later(10 * time.Second)
		if n := len(w.writes); n < 8 || n > 11 {
			t.Errorf("%d writes in 10 s", n)
		}
		w.fails = nil
		w.later(2 * time.Second)
		if got := w.objects["q"].Status.Used.Cpu().String(); got != "1" {
			t.Errorf("used = %s", got)
		}
	})
}

// Of a thousand quotas that change every second, every object has a status.used of the last minute, and in the group
// that has status in the object all annotations too. In the other group annotations take a write of their own, and
// 2,000 writes would be due in a minute that has 1,200: they come in the tenth of the writes that is theirs.
func TestAThousandQuotasThatChangeEverySecondRemainWithinTheBudget(t *testing.T) {
	t.Parallel()
	const leaves, limit, seconds, minute = 1000, 20, 125, 60
	for _, group := range v1alpha1.Groups() {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			run(t, func(w *world) {
				for i := range leaves {
					w.add(group, fmt.Sprintf("leaf-%d", i))
				}
				for second := int64(1); second <= seconds; second++ {
					for name := range w.objects {
						w.use(name, second)
					}
					w.later(time.Second)
					for name, o := range w.objects {
						if age := second - o.Status.Used.Cpu().MilliValue(); second > minute && age > minute {
							t.Fatalf("after %d s status.used of %s is of %d s ago", second, name, age)
						}
						want := annotation.Amounts(o.Status.Used).String()
						got, written := o.Annotations[annotation.QuotaRuntime]
						if group == v1alpha1.GroupName && written && got != want {
							t.Fatalf("runtime of %s is %s beside %s", name, got, want)
						}
					}
				}
				later := 0
				for i := range w.writes {
					if i >= limit && w.writes[i].at.Sub(w.writes[i-limit].at) < time.Second {
						t.Fatalf("more than %d writes in the second up to %v", limit, w.writes[i].at)
					}
					if w.writes[i].path == "" {
						later++
					}
				}
				if got, want := len(w.writes), seconds*limit*9/10; got < want {
					t.Errorf("%d writes, want %d or more: the budget is there to be used", got, want)
				}
				if want := len(w.writes) / 10; later < want {
					t.Errorf("annotations were written %d times, want %d", later, want)
				}
			})
		})
	}
}

func TestAProblemIsReportedOnce(t *testing.T) {
	t.Parallel()
	run(t, func(w *world) {
		w.add(v1alpha1.GroupName, "q")
		w.wrong = []string{"the parent does not exist"}
		w.later(5 * time.Second)
		w.wrong = nil
		w.later(2 * time.Second)
		w.wrong = []string{"the parent does not exist", "min is negative"}
		w.later(5 * time.Second)
		close(w.events.Events)
		var got []string
		for e := range w.events.Events {
			got = append(got, e)
		}
		want := []string{
			"Warning QuotaNotFollowed the parent does not exist", "Warning QuotaNotFollowed the parent does not exist",
			"Warning QuotaNotFollowed min is negative",
		}
		if !slices.Equal(got, want) {
			t.Errorf("events\n got %q\nwant %q", got, want)
		}
	})
}

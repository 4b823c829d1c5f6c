package besteffort_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/besteffort"
	"github.com/tenon-project/tenon/internal/agent/usage"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// thresholds is a strategy that is enabled.
type thresholds = slo.ResourceThresholdStrategy

func bounded(t thresholds) *slo.NodeSLO {
	t.Enable = new(true)
	return &slo.NodeSLO{Spec: slo.NodeSLOSpec{ResourceUsedThresholdWithBE: &t}}
}

// forMemory evicts from 70 % on, down to 60 %.
func forMemory() *slo.NodeSLO {
	return bounded(thresholds{MemoryEvictThresholdPercent: new(int64(70)), MemoryEvictLowerPercent: new(int64(60))})
}

// forCPU evicts below 50 % of the requests for 3 s, until 80 %.
func forCPU() *slo.NodeSLO {
	return bounded(thresholds{
		CPUEvictBESatisfactionLowerPercent: new(int64(50)), CPUEvictBESatisfactionUpperPercent: new(int64(80)),
		CPUEvictTimeWindowSeconds: new(int64(3)),
	})
}

// host is a node with an Evictor. Its pods use what they simulate.
type host struct {
	evictor *besteffort.Evictor
	mu      sync.Mutex // guards the fields below
	pods    []*corev1.Pod
	unknown bool // the pods are not all known
	state   besteffort.State
	batch   int64
	used    map[string]usage.Amounts
	evicted []string
	texts   []string
	fails   int // so many evictions fail
	failed  int
	press   int64
}

// unit is a hundredth of the memory of a host.
const unit = 1 << 20

func (h *host) Writes() bool            { return true }
func (h *host) ReservedMilli() int64    { return 0 }
func (h *host) BatchMilli() int64       { return h.batch }
func (h *host) State() besteffort.State { return h.state }

func (h *host) Evictable() ([]*corev1.Pod, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pods, !h.unknown
}

func (h *host) Evict(_ context.Context, v besteffort.Eviction) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fails--; h.fails >= 0 {
		return errors.New("no connection")
	}
	h.evicted, h.texts = append(h.evicted, v.Pod.Name), append(h.texts, v.Why)
	return nil
}

func (h *host) NotEvicted(context.Context, besteffort.Eviction, error) { h.failed++ }

func newHost(ctx context.Context, object *slo.NodeSLO) *host {
	h := &host{used: map[string]usage.Amounts{}, state: besteffort.State{CPUs: 10, Of: 10}}
	h.evictor = besteffort.NewEvictor(besteffort.EvictorOptions{Agent: h, Limit: h, Evictions: h})
	h.evictor.Follow(object)
	go func() { _ = h.evictor.Run(ctx) }()
	return h
}

// add adds a pod that uses and requests units of memory and milli-CPU.
func (h *host) add(name, class string, priority int32, used, requested int64, change ...func(*corev1.Pod)) {
	p := object.Pod("default/"+name, object.Container("c", "x"))
	p.UID = types.UID(name)
	p.Labels = map[string]string{annotation.QoSClass: class}
	p.Spec.Priority = &priority
	p.Spec.Containers[0].Resources.Requests = object.List("kubernetes.io/batch-cpu", fmt.Sprint(requested),
		"kubernetes.io/batch-memory", fmt.Sprint(requested*unit))
	for _, f := range change {
		f(p)
	}
	h.pods = append(h.pods, p)
	h.used[name] = usage.Amounts{MilliCPU: used, MemoryBytes: used * unit}
}

// remove lets pods be gone.
func (h *host) remove(names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var left []*corev1.Pod
	for _, p := range h.pods {
		if !strings.Contains(strings.Join(names, " ")+" ", p.Name+" ") {
			left = append(left, p)
		}
	}
	h.pods = left
}

// seconds lets time pass while the node uses units of memory.
func (h *host) seconds(n int, memory int64) {
	for range n {
		time.Sleep(time.Second) //nolint:forbidigo // the clock is the bubble's
		h.evictor.Tick(&usage.Sample{
			Time: time.Now(), Node: usage.Amounts{MemoryBytes: memory * unit},
			Capacity: usage.Amounts{MilliCPU: 10_000, MemoryBytes: 100 * unit}, Pods: h.used, MemoryPressure: h.press,
		})
		synctest.Wait()
	}
}

func (h *host) gone() string { return strings.Join(h.evicted, " ") }

// onHost runs a test on a host.
func onHost(t *testing.T, object *slo.NodeSLO, play func(t *testing.T, h *host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		play(t, newHost(ctx, object))
		cancel()
		synctest.Wait()
	})
}

func TestPodsAreEvictedForMemory(t *testing.T) {
	t.Parallel()
	leaves := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Minute)} }
	only := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{annotation.EvictionPolicyKey: text} }
	}
	tests := map[string]struct {
		object *slo.NodeSLO
		memory int64
		set    func(h *host)
		want   string
	}{
		"below the threshold":                       {forMemory(), 69, nil, ""},
		"at the threshold, down to the lower bound": {forMemory(), 70, nil, "low"},
		"more is needed":                            {forMemory(), 85, nil, "low over under"},
		"all, and never another pod":                {forMemory(), 100, nil, "low over under"},
		"the lower bound is 2 % below by default": {
			bounded(thresholds{MemoryEvictThresholdPercent: new(int64(90))}), 98, nil, "low",
		},
		"without a NodeSLO":   {nil, 100, nil, ""},
		"without a threshold": {bounded(thresholds{}), 100, nil, ""},
		"not enabled": {&slo.NodeSLO{Spec: slo.NodeSLOSpec{ResourceUsedThresholdWithBE: &thresholds{
			MemoryEvictThresholdPercent: new(int64(70)),
		}}}, 100, nil, ""},
		"not all pods are known": {forMemory(), 100, func(h *host) { h.unknown = true }, ""},
		"a pod that leaves counts": {forMemory(), 70, func(h *host) {
			h.add("leaves", "BE", 0, 10, 1, leaves)
		}, ""},
		"a critical pod and those of DaemonSets and files are left": {forMemory(), 100, func(h *host) {
			h.pods = nil
			h.add("critical", "BE", 2_000_000_000, 20, 1)
			h.add("daemon", "BE", 0, 20, 1, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}}
			})
			h.add("static", "BE", 0, 20, 1, func(p *corev1.Pod) {
				p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			})
			h.add("ended", "BE", 0, 20, 1, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			h.add("plain", "", 0, 20, 0)
		}, ""},
		"a pod that allows it": {forMemory(), 70, func(h *host) {
			h.add("allows", "BE", 0, 10, 1, only(`["BEMemoryEvict"]`))
		}, "allows"},
		"a pod that allows it for CPU alone": {forMemory(), 70, func(h *host) {
			h.add("cpu", "BE", 0, 10, 1, only(`["BECPUEvict"]`))
		}, "low"},
		"bad: what a pod allows cannot be read": {forMemory(), 70, func(h *host) {
			h.add("bad", "BE", 0, 10, 1, only(`BEMemoryEvict`))
		}, "low"},
		"bad: a sub-priority that is not a number counts as 0": {forMemory(), 70, func(h *host) {
			h.add("bad", "BE", 0, 9, 1, func(p *corev1.Pod) { p.Labels[annotation.Priority] = "x" })
		}, "bad low"},
		"the lowest eviction priority goes first": {forMemory(), 70, func(h *host) {
			h.add("first", "BE", 5999, 10, 20, func(p *corev1.Pod) {
				p.Annotations = map[string]string{annotation.EvictionPriority: "-1"}
			})
		}, "first"},
		"a higher one goes later": {forMemory(), 80, func(h *host) {
			h.pods[3].Annotations = map[string]string{annotation.EvictionPriority: "1"}
		}, "over under"},
		"bad: an eviction priority that is no int32 counts as 0": {forMemory(), 70, func(h *host) {
			h.add("bad", "BE", 5999, 10, 20, func(p *corev1.Pod) {
				p.Annotations = map[string]string{annotation.EvictionPriority: "-99999999999"}
			})
		}, "low"},
		"an eviction priority evicts no pod that may not be evicted": {forMemory(), 70, func(h *host) {
			h.add("cpu", "BE", 0, 10, 1, func(p *corev1.Pod) {
				p.Annotations = map[string]string{
					annotation.EvictionPriority: "-1", annotation.EvictionPolicyKey: `["BECPUEvict"]`,
				}
			})
		}, "low"},
		"a member of a gang is evicted alone, in the order of all": {forMemory(), 70, func(h *host) {
			for i, used := range []int64{9, 10, 9} {
				h.add(fmt.Sprint("member", i), "BE", 4900+int32(i%2), used, 1, func(p *corev1.Pod) {
					p.Annotations = map[string]string{annotation.GangName: "g", annotation.GangMinAvailable: "3"}
				})
			}
		}, "member0 member2"},
		"tasks wait for memory, from 70 % on": {
			with(forMemory(), func(t *thresholds) { t.MemoryEvictThresholdPercent = new(int64(95)) }), 70,
			func(h *host) { h.press = 1000 }, "low",
		},
		"tasks wait, and the node uses less": {
			with(forMemory(), func(t *thresholds) { t.MemoryEvictThresholdPercent = new(int64(95)) }), 69,
			func(h *host) { h.press = 10_000 }, "",
		},
		"tasks wait, without a threshold": {
			bounded(thresholds{}), 100, func(h *host) { h.press = 10_000 }, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onHost(t, test.object, func(t *testing.T, h *host) {
				h.add("service", "LS", 9000, 30, 10)
				h.add("under", "BE", 5500, 10, 20)
				h.add("over", "BE", 5500, 10, 5)
				h.add("low", "BE", 5000, 10, 20)
				if test.set != nil {
					test.set(h)
				}
				h.seconds(1, test.memory)
				if got := h.gone(); got != test.want {
					t.Errorf("got %q, want %q: %v", got, test.want, h.texts)
				}
			})
		})
	}
}

func TestAnEvictionSaysWhy(t *testing.T) {
	t.Parallel()
	onHost(t, forMemory(), func(t *testing.T, h *host) {
		h.add("batch", "BE", 0, 30, 20)
		h.seconds(1, 71)
		want := "the node uses 71 % of its memory, at or above 70 %: best-effort pods are evicted until it is 60 %; " +
			"this pod uses 30 MiB and requests 20 MiB"
		if len(h.texts) != 1 || h.texts[0] != want {
			t.Errorf("got %q, want %q", h.texts, want)
		}
	})
}

// TestNoPodIsEvictedForMemoryThatIsAboutToBeFree: while a pod ends, and until memory has been measured after its end.
func TestNoPodIsEvictedForMemoryThatIsAboutToBeFree(t *testing.T) {
	t.Parallel()
	onHost(t, forMemory(), func(t *testing.T, h *host) {
		for i := range 5 {
			h.add(fmt.Sprint("batch", i), "BE", int32(i), 10, 20)
		}
		h.seconds(20, 70)
		if got := h.gone(); got != "batch0" {
			t.Fatalf("while it ends: %q, want batch0", got)
		}
		h.seconds(1, 80)
		if got := h.gone(); got != "batch0 batch1" {
			t.Fatalf("when more is used: %q, want batch0 batch1", got)
		}
		h.remove("batch0", "batch1")
		h.seconds(5, 80)
		if got := h.gone(); got != "batch0 batch1" {
			t.Fatalf("when they have just gone: %q", got)
		}
		h.seconds(1, 70)
		if got := h.gone(); got != "batch0 batch1 batch2" {
			t.Fatalf("later: %q, want batch2 too", got)
		}
		h.seconds(40, 70)
		if got := h.gone(); got != "batch0 batch1 batch2 batch2" {
			t.Errorf("a pod whose deletion the API has not begun after 30 s: %q, want it evicted again", got)
		}
	})
}

func TestAFailedEvictionIsRetriedLater(t *testing.T) {
	t.Parallel()
	onHost(t, forMemory(), func(t *testing.T, h *host) {
		h.add("batch", "BE", 0, 30, 20)
		h.fails = 2
		h.seconds(5, 80)
		if h.failed != 1 || h.gone() != "" {
			t.Fatalf("%d failures in 5 s, want 1; evicted %q", h.failed, h.gone())
		}
		h.seconds(10, 80)
		if h.failed != 2 || h.gone() != "batch" {
			t.Errorf("%d failures, evicted %q; want 2, and batch", h.failed, h.gone())
		}
	})
}

func TestPodsAreEvictedForCPU(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		object  *slo.NodeSLO
		state   besteffort.State
		seconds int
		set     func(h *host)
		want    string
	}{
		"satisfied":                      {forCPU(), besteffort.State{CPUs: 5, Of: 10}, 9, nil, ""},
		"below, for the window":          {forCPU(), besteffort.State{CPUs: 4, Of: 10}, 4, nil, "low over"},
		"below, for less":                {forCPU(), besteffort.State{CPUs: 4, Of: 10}, 3, nil, ""},
		"by a quota":                     {forCPU(), besteffort.State{Quota: 400_000, Of: 10}, 4, nil, "low over"},
		"what they may use is not known": {forCPU(), besteffort.State{}, 9, nil, ""},
		"they do not use what they may": {
			forCPU(), besteffort.State{CPUs: 4, Of: 10}, 9, func(h *host) { h.used = nil }, "",
		},
		"by what the Node shows": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictPolicy = slo.EvictByAllocatable }),
			besteffort.State{CPUs: 10, Of: 10},
			4, func(h *host) { h.batch = 4000 }, "low over",
		},
		"by what the Node shows, which is enough": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictPolicy = slo.EvictByAllocatable }),
			besteffort.State{CPUs: 2, Of: 10},
			9, func(h *host) { h.batch = 5000 }, "",
		},
		"without the lower percent": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictBESatisfactionLowerPercent = nil }),
			besteffort.State{CPUs: 2, Of: 10},
			9, nil, "",
		},
		"without the upper percent": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictBESatisfactionUpperPercent = nil }),
			besteffort.State{CPUs: 2, Of: 10},
			9, nil, "",
		},
		"a minute by default": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictTimeWindowSeconds = nil }),
			besteffort.State{CPUs: 4, Of: 10},
			60, nil, "",
		},
		"a minute and more": {
			with(forCPU(), func(t *thresholds) { t.CPUEvictTimeWindowSeconds = nil }),
			besteffort.State{CPUs: 4, Of: 10},
			61, nil, "low over",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onHost(t, test.object, func(t *testing.T, h *host) {
				h.add("service", "LS", 9000, 9000, 9000)
				h.add("under", "BE", 5500, 1500, 4000)
				h.add("over", "BE", 5500, 1500, 3000)
				h.add("low", "BE", 5000, 1500, 3000)
				h.state = test.state
				if test.set != nil {
					test.set(h)
				}
				h.seconds(test.seconds, 10)
				if got := h.gone(); got != test.want {
					t.Errorf("got %q, want %q: %v", got, test.want, h.texts)
				}
			})
		})
	}
}

func with(object *slo.NodeSLO, change func(*thresholds)) *slo.NodeSLO {
	change(object.Spec.ResourceUsedThresholdWithBE)
	return object
}

// TestOnlyBestEffortPodsAreEvicted plays random nodes: a pod that is not best-effort is never evicted, no pod twice in
// 30 s, and of those that are evicted at once the last one is needed.
func TestOnlyBestEffortPodsAreEvicted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			h := newHost(ctx, forMemory())
			class := map[string]string{}
			for i := range rapid.IntRange(0, 8).Draw(rt, "pods") {
				name := fmt.Sprint("p", i)
				class[name] = rapid.SampledFrom([]string{"BE", "be", "LS", "LSR", "", "SYSTEM", "x"}).Draw(rt, "class")
				h.add(name, class[name], rapid.Int32Range(-1, 1).Draw(rt, "priority"),
					rapid.Int64Range(0, 20).Draw(rt, "used"), rapid.Int64Range(0, 20).Draw(rt, "requested"))
			}
			for range 5 {
				memory, before := rapid.Int64Range(0, 100).Draw(rt, "memory"), len(h.evicted)
				h.seconds(1, memory)
				leaving := int64(0)
				for _, name := range h.evicted[:before] {
					leaving += h.used[name].MemoryBytes / unit
				}
				for i, name := range h.evicted[before:] {
					if memory < 70 || memory-leaving <= 60 {
						rt.Errorf("%s, the %d., is evicted at %d, of which %d are about to be free", name, i, memory,
							leaving)
					}
					leaving += h.used[name].MemoryBytes / unit
				}
			}
			seen := map[string]bool{}
			for _, name := range h.evicted {
				if !strings.EqualFold(class[name], "BE") || seen[name] {
					rt.Errorf("pod %s of class %q is evicted, twice: %t", name, class[name], seen[name])
				}
				seen[name] = true
			}
			cancel()
			synctest.Wait()
		})
	})
}

func TestPodsThatUseMoreOfADeviceAreEvicted(t *testing.T) {
	t.Parallel()
	over := func(h *host, device, pod string, used, allocated int64) besteffort.Overuse {
		i := slices.IndexFunc(h.pods, func(p *corev1.Pod) bool { return p.Name == pod })
		return besteffort.Overuse{Device: device, Pod: h.pods[i], Used: used * unit, Allocated: allocated * unit}
	}
	leaves := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Minute)} }
	for name, test := range map[string]struct {
		list func(h *host) []besteffort.Overuse
		want string
	}{
		"no pod": {func(*host) []besteffort.Overuse { return nil }, ""},
		"a pod of another class": {func(h *host) []besteffort.Overuse {
			return []besteffort.Overuse{over(h, "a", "ls", 9, 1)}
		}, ""},
		"the one of lower priority": {func(h *host) []besteffort.Overuse {
			return []besteffort.Overuse{over(h, "a", "high", 9, 1), over(h, "a", "low", 2, 1), over(h, "a", "ls", 9, 1)}
		}, "low"},
		"of equal ones that which uses most of what it has": {func(h *host) []besteffort.Overuse {
			return []besteffort.Overuse{over(h, "a", "low", 15, 10), over(h, "a", "low2", 5, 2)}
		}, "low2"},
		"of each device one, and a pod once": {func(h *host) []besteffort.Overuse {
			list := []besteffort.Overuse{over(h, "b", "high", 2, 1), over(h, "a", "low", 2, 1)}
			return append(list, over(h, "b", "low", 2, 1))
		}, "low"},
		"of two devices": {func(h *host) []besteffort.Overuse {
			return []besteffort.Overuse{over(h, "b", "high", 2, 1), over(h, "a", "low", 2, 1)}
		}, "low high"},
		"none while one leaves": {func(h *host) []besteffort.Overuse {
			h.add("leaves", "BE", 5000, 1, 1, leaves)
			return []besteffort.Overuse{over(h, "a", "low", 2, 1), over(h, "a", "leaves", 2, 1)}
		}, ""},
		"one whose annotation does not allow it": {func(h *host) []besteffort.Overuse {
			h.add("cpu", "BE", 1, 1, 1, func(p *corev1.Pod) {
				p.Annotations = map[string]string{annotation.EvictionPolicyKey: `["BECPUEvict"]`}
			})
			return []besteffort.Overuse{over(h, "a", "cpu", 2, 1)}
		}, ""},
		"a pod of a DaemonSet": {func(h *host) []besteffort.Overuse {
			h.add("daemon", "BE", 1, 1, 1, func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d"}}
			})
			return []besteffort.Overuse{over(h, "a", "daemon", 2, 1)}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onHost(t, nil, func(t *testing.T, h *host) {
				t.Helper()
				for name, priority := range map[string]int32{"low": 5000, "low2": 5000, "high": 5999} {
					h.add(name, "BE", priority, 1, 1)
				}
				h.add("ls", "LS", 0, 1, 1)
				list := test.list(h)
				h.evictor.EvictOverusers(time.Now(), list)
				synctest.Wait()
				if h.gone() != test.want {
					t.Errorf("evicted %q, want %q", h.gone(), test.want)
				}
				for _, text := range h.texts {
					if !strings.Contains(text, "MiB of the memory of") {
						t.Errorf("the text is %q", text)
					}
				}
				h.evictor.EvictOverusers(time.Now().Add(time.Second), list)
				synctest.Wait()
				if len(h.evicted) > 0 && h.gone() != test.want {
					t.Errorf("while they leave, evicted %q, want %q", h.gone(), test.want)
				}
			})
		})
	}
}

package claims

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/claim"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// card is a device of a case: its model and NUMA node are attributes, and counters limit what is given of its chip.
type card struct {
	model     string
	numa      int64
	chip      int // of two; -1 for none
	uses      int64
	allocated bool
}

// want is a request of a case. model "" is any; then is the model of a second alternative.
type want struct {
	model, then string
	count       int64
	all         bool
}

// situation is a case of the allocator: cards of one pool, and the requests of claims.
type situation struct {
	cards  []card
	claims [][]want
	// match: all devices of a claim have one NUMA node.
	match bool
}

// chipCounters is what a chip has.
const chipCounters = 8

// classesOf has one class of all devices.
type classesOf struct{ fwk.SharedDRAManager }

func (classesOf) DeviceClasses() fwk.DeviceClassLister { return classesOf{} }

func (classesOf) Get(name string) (*resourcev1.DeviceClass, error) {
	c := &resourcev1.DeviceClass{}
	c.Name = name
	return c, nil
}

func (classesOf) List() ([]*resourcev1.DeviceClass, error) { return nil, nil }

// objects returns the slices and claims of a situation, and what is allocated.
func (s *situation) objects() ([]*resourcev1.ResourceSlice, []*resourcev1.ResourceClaim, *structured.AllocatedState) {
	pool := resourcev1.ResourcePool{Name: "n", Generation: 1, ResourceSliceCount: 2}
	devices := &resourcev1.ResourceSlice{}
	devices.Name, devices.Spec.Driver, devices.Spec.NodeName, devices.Spec.Pool = "devices", "x", new("n"), pool
	counters := devices.DeepCopy()
	counters.Name = "counters"
	for chip := range 2 {
		counters.Spec.SharedCounters = append(counters.Spec.SharedCounters, resourcev1.CounterSet{
			Name: fmt.Sprint("chip", chip), Counters: map[string]resourcev1.Counter{
				"memory": {Value: *resource.NewQuantity(chipCounters, resource.DecimalSI)},
			},
		})
	}
	state := &structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for i, c := range s.cards {
		d := resourcev1.Device{Name: fmt.Sprint("d", i)}
		d.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model": {StringValue: &c.model}, "numaNode": {IntValue: &c.numa},
		}
		if c.chip >= 0 {
			d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{
				CounterSet: fmt.Sprint("chip", c.chip), Counters: map[string]resourcev1.Counter{
					"memory": {Value: *resource.NewQuantity(c.uses, resource.DecimalSI)},
				},
			}}
		}
		if c.allocated {
			state.AllocatedDevices.Insert(structured.MakeDeviceID("x", "n", d.Name))
		}
		devices.Spec.Devices = append(devices.Spec.Devices, d)
	}
	var claims []*resourcev1.ResourceClaim
	for i, wants := range s.claims {
		c := newClaim(fmt.Sprint("c", i), false)
		for j, w := range wants {
			c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, w.request(fmt.Sprint("r", j)))
		}
		if s.match {
			c.Spec.Devices.Constraints = []resourcev1.DeviceConstraint{
				{MatchAttribute: new(resourcev1.FullyQualifiedName("x/numaNode"))},
			}
		}
		claims = append(claims, c)
	}
	return []*resourcev1.ResourceSlice{devices, counters}, claims, state
}

func selecting(model string) []resourcev1.DeviceSelector {
	if model == "" {
		return nil
	}
	return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.attributes['x'].model == '%s'", model),
	}}}
}

func (w want) request(name string) resourcev1.DeviceRequest {
	mode, count := resourcev1.DeviceAllocationModeExactCount, w.count
	if w.all {
		mode, count = resourcev1.DeviceAllocationModeAll, 0
	}
	if w.then == "" {
		return resourcev1.DeviceRequest{Name: name, Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "any", Selectors: selecting(w.model), AllocationMode: mode, Count: count,
		}}
	}
	first := resourcev1.DeviceSubRequest{
		Name: "first", DeviceClassName: "any", Selectors: selecting(w.model), AllocationMode: mode, Count: count,
	}
	second := first
	second.Name, second.Selectors = "second", selecting(w.then)
	second.AllocationMode, second.Count = resourcev1.DeviceAllocationModeExactCount, max(w.count, 1)
	return resourcev1.DeviceRequest{Name: name, FirstAvailable: []resourcev1.DeviceSubRequest{first, second}}
}

// question asks about a situation; its site is that of a node whose account is not known.
func (s *situation) question() (*question, []*resourcev1.ResourceClaim) {
	devices, claims, state := s.objects()
	p := &plan{choice: &choice{
		dra: classesOf{}, selectors: cel.NewCache(selectorsKept, cel.Features{}),
		features: structured.Features{
			AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true,
			ConsumableCapacity: true,
		},
	}, slices: devices, state: state, taken: state.AllocatedDevices}
	p.once.Do(func() {})
	node := &corev1.Node{}
	node.Name = "n"
	return &question{plan: p, node: node, site: p.siteOf("n", nil), state: p.state, best: true}, claims
}

// invalid returns why results are no answer to the claims of a situation on all its devices; "" for nothing.
func (s *situation) invalid(results []resourcev1.AllocationResult) string {
	used, chips := map[string]bool{}, map[int]int64{}
	for i := range s.cards {
		if c := &s.cards[i]; c.allocated && c.chip >= 0 {
			chips[c.chip] += c.uses
		}
	}
	for i, wants := range s.claims {
		numa := map[int64]bool{}
		given := map[string][]int{}
		for _, r := range results[i].Devices.Results {
			var at int
			if _, err := fmt.Sscanf(r.Device, "d%d", &at); err != nil || at >= len(s.cards) {
				return "no device " + r.Device
			}
			c := &s.cards[at]
			if c.allocated || used[r.Device] {
				return r.Device + " is given twice"
			}
			used[r.Device], numa[c.numa] = true, true
			if c.chip >= 0 {
				chips[c.chip] += c.uses
			}
			given[r.Request] = append(given[r.Request], at)
		}
		if s.match && len(numa) > 1 {
			return "several NUMA nodes"
		}
		for j, w := range wants {
			name, model, count, all := fmt.Sprint("r", j), w.model, w.count, w.all
			if w.then != "" {
				if len(given[name+"/second"]) > 0 {
					name, model, count, all = name+"/second", w.then, max(w.count, 1), false
				} else {
					name += "/first"
				}
			}
			matching := int64(0)
			for k := range s.cards {
				if model == "" || s.cards[k].model == model {
					matching++
				}
			}
			if all {
				count = matching
			}
			if int64(len(given[name])) != count {
				return fmt.Sprintf("%s has %d devices, want %d", name, len(given[name]), count)
			}
			for _, at := range given[name] {
				if model != "" && s.cards[at].model != model {
					return fmt.Sprintf("d%d is a %s", at, s.cards[at].model)
				}
			}
		}
	}
	for chip, n := range chips {
		if n > chipCounters {
			return fmt.Sprintf("chip %d: %d of %d", chip, n, chipCounters)
		}
	}
	return ""
}

// draw draws a situation.
func draw(t *rapid.T) *situation {
	model := rapid.SampledFrom([]string{"a", "b"})
	s := &situation{match: rapid.IntRange(0, 3).Draw(t, "match") == 0}
	used := map[int]int64{} // of each chip, which has 8
	for range rapid.IntRange(1, 6).Draw(t, "devices") {
		c := card{
			model: model.Draw(t, "model"), numa: rapid.Int64Range(0, 1).Draw(t, "NUMA node"),
			chip: rapid.IntRange(-1, 1).Draw(t, "chip"), uses: rapid.Int64Range(1, 8).Draw(t, "uses"),
			allocated: rapid.IntRange(0, 3).Draw(t, "allocated") == 0,
		}
		if c.allocated = c.allocated && (c.chip < 0 || used[c.chip]+c.uses <= 8); c.allocated {
			used[c.chip] += c.uses
		}
		s.cards = append(s.cards, c)
	}
	for range rapid.IntRange(1, 2).Draw(t, "claims") {
		var wants []want
		for range rapid.IntRange(1, 2).Draw(t, "requests") {
			w := want{
				model: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "wanted"),
				count: rapid.Int64Range(1, 2).Draw(t, "count"),
				all:   rapid.IntRange(0, 5).Draw(t, "all") == 0,
			}
			if rapid.IntRange(0, 3).Draw(t, "alternative") == 0 {
				w.then = model.Draw(t, "then")
			}
			wants = append(wants, w)
		}
		s.claims = append(s.claims, wants)
	}
	return s
}

// first asks the allocator about all devices.
func (q *question) first(ctx context.Context, claims []*resourcev1.ResourceClaim) []resourcev1.AllocationResult {
	return q.narrowed(ctx, claims, make([]bool, len(q.site.Devices)))
}

// TestNarrowedAnswersAreValid hides devices at random, within the rules, and checks each answer against all devices.
func TestNarrowedAnswersAreValid(t *testing.T) {
	t.Parallel()
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		q, claims := s.question()
		ctx := context.Background()
		first := q.first(ctx, claims)
		if len(first) == 0 {
			return
		}
		if fault := s.invalid(first); fault != "" {
			t.Fatalf("upstream's answer: %s", fault)
		}
		if anyAlternativeForAll(claims) {
			return
		}
		for range 8 {
			hide := rapid.SliceOfN(rapid.Bool(), len(s.cards), len(s.cards)).Draw(t, "hidden")
			hidden := q.site.Hidden(func(i int) bool { return hide[i] }, q.answer(claims, first))
			result := q.narrowed(ctx, claims, hidden)
			if len(result) != len(claims) || isLater(claims, result, first) {
				continue
			}
			accepted++
			if fault := s.invalid(result); fault != "" {
				t.Fatalf("%s\nhidden %v of %+v\nclaims %+v", fault, hidden, s.cards, s.claims)
			}
		}
	})
	t.Logf("%d answers were accepted", accepted)
	if accepted == 0 {
		t.Error("no answer was accepted")
	}
}

// TestChosenAnswersAreValid: what is chosen satisfies all claims, and is what the allocator gives where no place is
// known.
func TestChosenAnswersAreValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := draw(t)
		ctx := context.Background()
		q, claims := s.question()
		first := q.first(ctx, claims)
		if len(first) == 0 {
			return
		}
		if got := q.choose(ctx, claims, first); s.invalid(got) != "" {
			t.Fatalf("%s: %+v of %+v", s.invalid(got), got, s)
		}
		for i := range q.site.Devices {
			d := &q.site.Devices[i]
			d.Nodes, d.Card = 0, ""
		}
		if diff := cmp.Diff(first, q.choose(ctx, claims, first)); diff != "" {
			t.Fatalf("nothing is known of places (-upstream +chosen):\n%s", diff)
		}
	})
}

// TestWhatMayNotBeHidden has the cases that a device too few would make valid.
func TestWhatMayNotBeHidden(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		s situation

		want string // devices of the best answer
	}{
		"a device that is allocated and uses up counters": {
			s: situation{
				cards: []card{
					{model: "a", chip: 0, uses: 5, allocated: true},
					{model: "a", chip: 0, uses: 3},
					{model: "a", numa: 1, chip: 1, uses: 8},
				},
				claims: [][]want{{{model: "a", count: 1}}},
			},
			want: "d1",
		},
		"a device of a request for all": {
			s: situation{
				cards:  []card{{model: "a", chip: -1}, {model: "a", numa: 1, chip: -1}},
				claims: [][]want{{{model: "a", all: true}}},
			},
			want: "d0 d1",
		},
		"an alternative that asks for all": {
			s: situation{
				cards: []card{
					{model: "a", chip: -1, allocated: true},
					{model: "a", numa: 1, chip: -1},
					{model: "b", numa: 1, chip: -1},
				},
				claims: [][]want{{{model: "a", then: "b", all: true}}},
			},
			want: "d2",
		},
	} {
		q, claims := tt.s.question()
		first := q.first(t.Context(), claims)
		if len(first) == 0 {
			t.Errorf("%s: no answer", name)
			continue
		}
		got := ""
		for _, r := range q.choose(t.Context(), claims, first)[0].Devices.Results {
			got += " " + r.Device
		}
		if got != " "+tt.want {
			t.Errorf("%s: got%s, want %s", name, got, tt.want)
		}
	}
}

// TestAPoolWithADoubleNameIsNotNarrowed: it is invalid, and would be valid without the two.
func TestAPoolWithADoubleNameIsNotNarrowed(t *testing.T) {
	t.Parallel()
	s := &situation{cards: []card{{chip: -1}, {numa: 1, chip: -1}}, claims: [][]want{{{count: 1}}}}
	q, claims := s.question()
	broken := q.slices[0].DeepCopy()
	broken.Name, broken.Spec.Pool = "broken", resourcev1.ResourcePool{Name: "z", Generation: 1, ResourceSliceCount: 1}
	broken.Spec.Devices = append(broken.Spec.Devices, broken.Spec.Devices[0])
	q.slices = append(q.slices, broken)
	q.site = q.siteOf("n", nil)
	first := q.first(t.Context(), claims)
	hidden := q.site.Hidden(func(int) bool { return true }, q.answer(claims, first))
	if want := []bool{true, true, false, false}; !slices.Equal(hidden, want) {
		t.Errorf("got %v, want %v", hidden, want)
	}
}

// TestALaterAlternativeIsRefused, whatever the other requests have.
func TestALaterAlternativeIsRefused(t *testing.T) {
	t.Parallel()
	results := func(requests ...string) []resourcev1.AllocationResult {
		a := resourcev1.AllocationResult{}
		for _, r := range requests {
			a.Devices.Results = append(a.Devices.Results, resourcev1.DeviceRequestAllocationResult{Request: r})
		}
		return []resourcev1.AllocationResult{a}
	}
	c := newClaim("c", false)
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{
		want{model: "a", then: "b", count: 1}.request("r0"), want{model: "a", then: "b", count: 1}.request("r1"),
	}
	first := results("r0/first", "r1/second")
	for name, tt := range map[string]struct {
		results []resourcev1.AllocationResult
		later   bool
	}{
		"equal":                   {results("r0/first", "r1/second"), false},
		"later in the first":      {results("r0/second", "r1/first"), true},
		"earlier in the second":   {results("r0/first", "r1/first"), false},
		"in another order of all": {results("r1/second", "r0/first"), false},
	} {
		if got := isLater([]*resourcev1.ResourceClaim{c}, tt.results, first); got != tt.later {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestTheFirstAnswerIsKeptWithoutAQuestion, and after an error.
func TestTheFirstAnswerIsKeptWithoutAQuestion(t *testing.T) {
	t.Parallel()
	s := &situation{cards: []card{{chip: -1}, {numa: 1, chip: -1}}, claims: [][]want{{{count: 1}}}}
	q, claims := s.question()
	inner, err := structured.NewAllocator(t.Context(), q.features, *q.state, q.dra.DeviceClasses(), q.slices,
		q.selectors)
	if err != nil {
		t.Fatal(err)
	}
	c := &chooser{inner}
	q.rest = claim.Rest{Given: 2}
	for name, tt := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"no question": {t.Context(), "d0"}, "beside a device on NUMA node 1": {
			context.WithValue(t.Context(), questionKey{}, q), "d1",
		},
	} {
		got, err := c.Allocate(tt.ctx, q.node, claims)
		if err != nil || len(got) != 1 || got[0].Devices.Results[0].Device != tt.want {
			t.Errorf("%s: got %+v, %v, want %s", name, got, err, tt.want)
		}
	}
	q.state = nil // claims were changing
	if got, err := c.Allocate(context.WithValue(t.Context(), questionKey{}, q), q.node, claims); err != nil ||
		got[0].Devices.Results[0].Device != "d0" {
		t.Errorf("nothing is known of claims: got %+v, %v", got, err)
	}
}

// TestListsThatHaveAValueInCommon: with attributes that are lists, devices match that share a value with all others,
// also where the first one has another value as well, and where devices are hidden.
func TestListsThatHaveAValueInCommon(t *testing.T) {
	t.Parallel()
	s := &situation{
		cards: []card{{chip: -1}, {chip: -1}, {chip: -1}, {chip: -1}, {chip: -1}}, match: true,
		claims: [][]want{{{count: 3}}},
	}
	q, claims := s.question()
	q.features.ListTypeAttributes = true
	for i, values := range [][]int64{{1, 2}, {1}, {2}, {2}, {2}} {
		q.slices[0].Spec.Devices[i].Attributes["numaNode"] = resourcev1.DeviceAttribute{IntValues: values}
	}
	for name, tt := range map[string]struct {
		hidden []bool
		want   []string
	}{
		"all devices":         {make([]bool, 5), []string{"d0", "d2", "d3"}},
		"one is hidden":       {[]bool{2: true, 4: false}, []string{"d0", "d3", "d4"}},
		"the first is hidden": {[]bool{0: true, 4: false}, []string{"d2", "d3", "d4"}},
		"two are hidden":      {[]bool{0: true, 3: true, 4: false}, nil},
	} {
		var got []string
		for _, a := range q.narrowed(t.Context(), claims, tt.hidden) {
			for _, d := range a.Devices.Results {
				got = append(got, d.Device)
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

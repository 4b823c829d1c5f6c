package reservation_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/reservation"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func labelled(key string, values ...string) device.Selector {
	return device.Selector{{Key: key, Operator: device.In, Values: values}}
}

func TestWhichPodsMayUseAReservation(t *testing.T) {
	t.Parallel()
	replicas := &reservation.Reference{UID: "rs", APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "ns", Name: "r"}
	pod := reservation.Pod{
		UID: "u", Namespace: "ns", Name: "p", Labels: map[string]string{"app": "a", "tier": "1"}, Controller: replicas,
		Request: amount.List{"cpu": 4000},
	}
	with := func(change func(*reservation.Pod)) *reservation.Pod {
		p := pod
		change(&p)
		return &p
	}
	to := func(a reservation.Affinity) *reservation.Pod {
		return with(func(p *reservation.Pod) { p.Affinity = a })
	}
	owned := func(owners ...reservation.Owner) reservation.Spec { return reservation.Spec{Owners: owners} }
	app := reservation.Owner{Selector: labelled("app", "a")}
	type ref = reservation.Reference
	object := func(r ref) reservation.Owner { return reservation.Owner{Object: &r} }
	controller := func(r ref) reservation.Owner { return reservation.Owner{Controller: &r} }
	tainted := owned(app)
	tainted.Taints = []reservation.Taint{{Key: "for", Value: "x", Effect: "NoSchedule"}}
	closed := owned(app)
	closed.Unschedulable = true
	named := owned(app)
	named.Name, named.Labels = "r1", map[string]string{"pool": "gold", "rank": "7"}
	named.Allocatable = amount.List{"cpu": 4000, "memory": 1}
	for name, c := range map[string]struct {
		spec reservation.Spec
		pod  *reservation.Pod
		want bool
	}{
		"a label":                       {owned(app), &pod, true},
		"another label":                 {owned(reservation.Owner{Selector: labelled("app", "b")}), &pod, false},
		"one of two entries":            {owned(reservation.Owner{Selector: labelled("app", "b")}, app), &pod, true},
		"its own uid":                   {owned(object(ref{UID: "u"})), &pod, true},
		"the uid of a namesake":         {owned(object(ref{UID: "v", Namespace: "ns", Name: "p"})), &pod, false},
		"its own name":                  {owned(object(ref{Namespace: "ns", Name: "p"})), &pod, true},
		"its name in another namespace": {owned(object(ref{Namespace: "other", Name: "p"})), &pod, false},
		"its name, of another kind":     {owned(object(ref{Kind: "Job", Namespace: "ns", Name: "p"})), &pod, false},
		"its controller by uid":         {owned(controller(ref{UID: "rs", Kind: "ReplicaSet", Name: "r"})), &pod, true},
		"a former one":                  {owned(controller(ref{UID: "x", Kind: "ReplicaSet", Name: "r"})), &pod, false},
		"its controller by name":        {owned(controller(ref{Kind: "ReplicaSet", Name: "r"})), &pod, true},
		"a controller of another kind":  {owned(controller(ref{Kind: "StatefulSet", Name: "r"})), &pod, false},
		"a controller elsewhere": {
			owned(controller(ref{Kind: "ReplicaSet", Name: "r", Namespace: "x"})), &pod, false,
		},
		"controller and label": {
			owned(reservation.Owner{Controller: replicas, Selector: labelled("app", "a")}), &pod, true,
		},
		"controller and another label": {
			owned(reservation.Owner{Controller: replicas, Selector: labelled("app", "b")}), &pod, false,
		},
		"a pod that ignores reservations": {owned(app), with(func(p *reservation.Pod) { p.Ignores = true }), false},
		"closed to further pods":          {closed, &pod, false},
		"a taint":                         {tainted, &pod, false},
		"a taint that is tolerated": {
			tainted, to(reservation.Affinity{Tolerations: []reservation.Toleration{{Key: "for", Value: "x"}}}), true,
		},
		"a taint of another value": {
			tainted, to(reservation.Affinity{Tolerations: []reservation.Toleration{{Key: "for", Value: "y"}}}), false,
		},
		"every taint is tolerated": {
			tainted, to(reservation.Affinity{Tolerations: []reservation.Toleration{{Exists: true}}}), true,
		},
		"a taint of another effect": {
			tainted, to(reservation.Affinity{Tolerations: []reservation.Toleration{
				{Key: "for", Exists: true, Effect: "NoExecute"},
			}}), false,
		},
		"an affinity to the name":     {named, to(reservation.Affinity{Name: "r1"}), true},
		"an affinity to another name": {named, to(reservation.Affinity{Name: "r2"}), false},
		"an affinity to a label": {
			named, to(reservation.Affinity{Labels: map[string]string{"pool": "gold"}}), true,
		},
		"an affinity to another label": {named, to(reservation.Affinity{Labels: map[string]string{"pool": ""}}), false},
		"an affinity by terms": {named, to(reservation.Affinity{Terms: []reservation.Term{
			{}, {Labels: device.Selector{{Key: "rank", Operator: device.Gt, Values: []string{"6"}}}},
		}}), true},
		"an affinity by a number too high": {named, to(reservation.Affinity{Terms: []reservation.Term{
			{Labels: device.Selector{{Key: "rank", Operator: device.Gt, Values: []string{"7"}}}},
		}}), false},
		"an affinity by a field": {named, to(reservation.Affinity{Terms: []reservation.Term{
			{Fields: labelled("metadata.name", "r1", "r3")},
		}}), true},
		"an empty term": {named, to(reservation.Affinity{Terms: []reservation.Term{{}}}), false},
		"exactly the amount": {
			named, with(func(p *reservation.Pod) { p.Exact = []string{"cpu"} }), true,
		},
		"not exactly the amount": {
			named, with(func(p *reservation.Pod) { p.Exact = []string{"cpu", "memory"} }), false,
		},
	} {
		if got := c.spec.Matches(c.pod); got != c.want {
			t.Errorf("%s: matches = %v, want %v", name, got, c.want)
		}
	}
}

func TestTheBestOfSeveralReservationsComesFirst(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	a := reservation.NewAccount()
	for _, s := range []reservation.Spec{
		{UID: "large", Name: "large", Allocatable: amount.List{"cpu": 8000}, Created: day(1)},
		{UID: "young", Name: "young", Allocatable: amount.List{"cpu": 4000}, Created: day(3)},
		{UID: "old", Name: "old", Allocatable: amount.List{"cpu": 4000}, Created: day(2)},
		{UID: "namesake", Name: "namesake", Allocatable: amount.List{"cpu": 4000}, Created: day(2)},
		{UID: "second", Name: "second", Allocatable: amount.List{"cpu": 8000}, Order: 2},
		{UID: "first", Name: "first", Allocatable: amount.List{"cpu": 8000}, Order: -1},
	} {
		s.Node, s.Owners = "n", []reservation.Owner{{Selector: labelled("app", "a")}}
		a.Put(&s)
	}
	p := &reservation.Pod{Labels: map[string]string{"app": "a"}, Request: amount.List{"cpu": 4000}}
	var got []string
	for _, s := range a.Matching(p)["n"] {
		got = append(got, s.Name)
	}
	want := []string{"first", "second", "namesake", "old", "young", "large"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestTheReservationOfWhichLeastIsLeftIsFoundUnderAnyNameOfADevice(t *testing.T) {
	t.Parallel()
	a := reservation.NewAccount()
	for name, amounts := range map[string]amount.List{
		"large": {device.GPUCore: 100, device.GPURatio: 100}, "small": {device.GPUPercent: 60},
	} {
		owners := []reservation.Owner{{Selector: labelled("app", "a")}}
		a.Put(&reservation.Spec{UID: name, Name: name, Node: "n", Owners: owners, Allocatable: amounts})
	}
	for _, request := range []amount.List{{device.GPUCore: 60, device.GPURatio: 60}, {device.GPUPercent: 60}} {
		p := &reservation.Pod{Labels: map[string]string{"app": "a"}, Request: request}
		if got := a.Matching(p)["n"]; len(got) != 2 || got[0].Name != "small" {
			t.Errorf("%v: %v, want small first", request, got)
		}
	}
}

// TestRestrictedReservationsGiveNoMoreThanTheyHave are the examples of the reference: a reservation of 4 CPUs.
func TestRestrictedReservationsGiveNoMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	four := amount.List{"cpu": 4000, "memory": 8}
	for name, c := range map[string]struct {
		spec     reservation.Spec
		request  amount.List
		resource string
		free     int64
	}{
		"6 CPUs, aligned": {reservation.Spec{Allocatable: four}, amount.List{"cpu": 6000}, "", 0},
		"6 CPUs": {
			reservation.Spec{Allocatable: four, Restricted: true}, amount.List{"cpu": 6000}, "cpu", 4000,
		},
		"3 CPUs and a GPU": {
			reservation.Spec{Allocatable: four, Restricted: true},
			amount.List{"cpu": 3000, "gpu": 1},
			"", 0,
		},
		"memory that does not count": {
			reservation.Spec{Allocatable: four, Restricted: true, RestrictedTo: []string{"cpu"}},
			amount.List{"memory": 9},
			"", 0,
		},
		"the first by name": {
			reservation.Spec{Allocatable: four, Restricted: true},
			amount.List{"cpu": 4001, "memory": 9},
			"cpu", 4000,
		},
	} {
		if resource, free := c.spec.Shortage(c.request, four); resource != c.resource || free != c.free {
			t.Errorf("%s: lacks %q, free %d, want %q, %d", name, resource, free, c.resource, c.free)
		}
	}
}

// TestAnOwnerMayNameADeviceInAnotherWay: what owners have of the GPUs of a Reservation, under whatever name, is no
// longer left; a pod that wants exactly what is reserved matches by amount, not by name.
func TestAnOwnerMayNameADeviceInAnotherWay(t *testing.T) {
	t.Parallel()
	const percent, core, ratio, whole = device.GPUPercent, device.GPUCore, device.GPURatio, device.NVIDIAGPU
	type amounts = amount.List
	for name, c := range map[string]struct {
		reserved, asked, left amounts
		exact                 []string // of the names that both use
		other                 []string // names of which another amount is reserved
		lacks                 string   // if the Reservation is Restricted
	}{
		"compute and memory of a percentage": {
			amounts{percent: 60}, amounts{core: 60, ratio: 60}, amounts{}, []string{percent, core, ratio}, nil, "",
		},
		"a percentage of compute and memory": {
			amounts{core: 100, ratio: 100},
			amounts{percent: 60},
			amounts{core: 40, ratio: 40},
			nil,
			[]string{percent, core, ratio},
			"",
		},
		"another spelling": {
			amounts{core: 50, ratio: 50},
			amounts{"kubernetes.io/gpu": 50},
			amounts{},
			[]string{percent, "kubernetes.io/gpu", "kubernetes.io/gpu-core"},
			nil, "",
		},
		"more compute than memory": {
			amounts{core: 50, ratio: 60},
			amounts{core: 60, ratio: 60},
			amounts{},
			[]string{ratio},
			[]string{percent, core},
			core,
		},
		"a GPU of a vendor of percent": {
			amounts{core: 200, ratio: 200},
			amounts{whole: 1},
			amounts{core: 100, ratio: 100},
			nil,
			[]string{percent, whole},
			"",
		},
		"percent of a vendor's GPU": {
			amounts{whole: 2}, amounts{core: 100, ratio: 100}, amounts{whole: 1}, nil, []string{percent, whole}, "",
		},
		"all of a vendor's GPU": {
			amounts{whole: 1}, amounts{percent: 100}, amounts{}, []string{percent, core, whole}, nil, "",
		},
		"half a GPU for a whole one": {
			amounts{core: 50, ratio: 50}, amounts{whole: 1}, amounts{}, nil, []string{whole, percent}, core,
		},
		"a second share of one GPU": {
			amounts{core: 60, ratio: 60, device.GPUShared: 0},
			amounts{core: 60, ratio: 60, device.GPUShared: 1},
			amounts{},
			[]string{core},
			[]string{device.GPUShared},
			"",
		},
		"no GPU": {
			amounts{core: 60, "cpu": 2}, amounts{"cpu": 2}, amounts{core: 60}, []string{"cpu"}, []string{core}, "",
		},
	} {
		owners := []reservation.Owner{{Selector: labelled("app", "a")}}
		s := reservation.Spec{UID: "r", Node: "n", Owners: owners, Allocatable: c.reserved, Restricted: true}
		a := reservation.NewAccount()
		a.Put(&s)
		if got, _ := s.Shortage(c.asked, c.reserved); got != c.lacks {
			t.Errorf("%s: lacks %q, want %q", name, got, c.lacks)
		}
		for i, exact := range append(c.exact, c.other...) {
			p := reservation.Pod{Labels: map[string]string{"app": "a"}, Request: c.asked, Exact: []string{exact}}
			if got := s.Matches(&p); got != (i < len(c.exact)) {
				t.Errorf("%s: matches by exact %s: %v", name, exact, got)
			}
		}
		if err := a.Use("p", "r", c.asked); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.left, a.Left("r")); diff != "" {
			t.Errorf("%s: left (-want +got):\n%s", name, diff)
		}
	}
}

func TestWhenAReservationExpires(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := reservation.Expires(now, now.Add(1), time.Hour); !got.Equal(now.Add(1)) {
		t.Errorf("expires is %v, want what the user set", got)
	}
	if got := reservation.Expires(now, time.Time{}, time.Hour); !got.Equal(now.Add(time.Hour)) {
		t.Errorf("expires is %v, want an hour after the creation", got)
	}
	if got := reservation.Expires(now, time.Time{}, 0); !got.IsZero() {
		t.Errorf("a ttl of 0 expires at %v", got)
	}
}

// model is an account without index: every question looks at everything.
type model struct {
	specs    map[string]*reservation.Spec
	users    map[string]string // reservations by pod
	requests map[string]amount.List
}

func (m *model) usersOf(uid string) (pods []string) {
	for pod, used := range m.users {
		if used == uid {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	return pods
}

// use is what a node's pods and reservations take of a resource once each pod that uses a reservation stands for its
// part of it: the pod and the rest.
func (m *model) use(node, resource string) (sum int64) {
	for uid, s := range m.specs {
		if s.Node != node {
			continue
		}
		users, rest := m.usersOf(uid), s.Allocatable[resource]
		for _, pod := range users {
			rest -= m.requests[pod][resource]
		}
		if rest > 0 && !(s.Once && len(users) > 0) {
			sum += rest
		}
	}
	for pod := range m.users {
		sum += m.requests[pod][resource]
	}
	return sum
}

// drawn returns a source of random numbers that a property draws: the cases of `make soak` are others.
func drawn(t *rapid.T) *rand.Rand {
	return rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), rapid.Uint64().Draw(t, "stream")))
}

// TestAccountsAgreeWithACountOfEverything: after each of many random steps the indexed account answers as one that
// looks at all reservations and pods, one pod at most uses a reservation that is for one, and no more of a reservation
// is allocated than there is.
func TestAccountsAgreeWithACountOfEverything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		random := drawn(t)
		for range 50 {
			useAtRandom(t, random)
		}
	})
}

// useAtRandom takes random steps with an account, and compares it after each.
func useAtRandom(t *rapid.T, random *rand.Rand) {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	a := reservation.NewAccount()
	m := model{map[string]*reservation.Spec{}, map[string]string{}, map[string]amount.List{}}
	for range 24 {
		pod := pick("p0", "p1", "p2", "p3")
		switch random.IntN(6) {
		case 0, 1:
			s := randomSpec(random, pick)
			a.Put(s)
			m.specs[s.UID] = s
		case 2:
			uid := pick("r0", "r1", "r2")
			a.Remove(uid)
			delete(m.specs, uid)
		case 3, 4:
			uid := pick("r0", "r1", "r2")
			request := amount.List{"cpu": random.Int64N(5), "gpu": random.Int64N(2)}
			s := m.specs[uid]
			others := slices.DeleteFunc(m.usersOf(uid), func(p string) bool { return p == pod })
			possible := s != nil && s.Node != "" && !(s.Once && len(others) > 0)
			err := a.Use(pod, uid, request)
			if (err == nil) != possible || err != nil && !errors.Is(err, reservation.ErrUsed) {
				t.Fatalf("%s uses %s: %v, possible %v", pod, uid, err, possible)
			}
			if possible {
				m.users[pod], m.requests[pod] = uid, request
			}
		case 5:
			if got := a.Release(pod); got != m.users[pod] {
				t.Fatalf("%s used %q, want %q", pod, got, m.users[pod])
			}
			delete(m.users, pod)
		}
		compareAccounts(t, a, &m)
		compareMatches(t, a, &m, randomPod(random, pick))
	}
}

func randomSpec(random *rand.Rand, pick func(...string) string) *reservation.Spec {
	s := &reservation.Spec{
		UID: pick("r0", "r1", "r2"), Node: pick("", "n0", "n1"), Once: random.IntN(2) == 0, Order: random.Int64N(3),
		Allocatable: amount.List{"cpu": random.Int64N(6), "gpu": random.Int64N(3)},
	}
	s.Name = "name-" + s.UID
	for range 1 + random.IntN(2) {
		s.Owners = append(s.Owners, []reservation.Owner{
			{Object: &reservation.Reference{UID: pick("p0", "p1")}},
			{Object: &reservation.Reference{Name: pick("p0", "p2"), Namespace: pick("", "ns")}},
			{Controller: &reservation.Reference{Kind: "Job", Name: pick("j0", "j1"), UID: pick("", "j0")}},
			{Selector: labelled("app", pick("a", "b"))},
			{Selector: labelled("app", "a", "b")},
			{Selector: device.Selector{{Key: pick("app", "tier"), Operator: device.Exists}}},
			{Controller: &reservation.Reference{Kind: "Job", Name: "j0"}, Selector: labelled("app", "a")},
		}[random.IntN(7)])
	}
	return s
}

func randomPod(random *rand.Rand, pick func(...string) string) *reservation.Pod {
	p := &reservation.Pod{
		Namespace: "ns", Labels: map[string]string{}, Request: amount.List{"cpu": random.Int64N(5)},
	}
	p.Name = pick("p0", "p1", "p2")
	p.UID = p.Name
	if random.IntN(2) == 0 {
		p.Labels[pick("app", "tier")] = pick("a", "b")
	}
	if random.IntN(2) == 0 {
		name := pick("j0", "j1")
		p.Controller = &reservation.Reference{UID: name, Kind: "Job", Name: name, Namespace: "ns"}
	}
	return p
}

func compareAccounts(t *rapid.T, a *reservation.Account, m *model) {
	t.Helper()
	for _, node := range []string{"n0", "n1"} {
		for _, resource := range []string{"cpu", "gpu"} {
			sum := int64(0)
			for uid, s := range m.specs {
				if s.Node == node {
					sum += a.Left(uid)[resource]
				}
			}
			for pod := range m.users {
				sum += m.requests[pod][resource]
			}
			if want := m.use(node, resource); sum != want {
				t.Fatalf("%s of %s: %d in use, want %d: %v, users %v of %v", resource, node, sum, want, m.specs,
					m.users, m.requests)
			}
		}
	}
	for uid, s := range m.specs {
		users := a.Users(uid)
		if diff := cmp.Diff(m.usersOf(uid), users); diff != "" && len(users)+len(m.usersOf(uid)) > 0 {
			t.Fatalf("users of %s (-want +got):\n%s", uid, diff)
		}
		for name, n := range a.Allocated(uid) {
			if n > s.Allocatable[name] {
				t.Fatalf("%d of %d %s are allocated", n, s.Allocatable[name], name)
			}
		}
	}
}

func compareMatches(t *rapid.T, a *reservation.Account, m *model, p *reservation.Pod) {
	t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for uid, s := range m.specs {
		if s.Node != "" && !(s.Once && len(m.usersOf(uid)) > 0) && s.Matches(p) {
			want[fmt.Sprint(s.Node, " ", uid)] = true
		}
	}
	for node, specs := range a.Matching(p) {
		for _, s := range specs {
			got[fmt.Sprint(node, " ", s.UID)] = true
		}
	}
	if !maps.Equal(want, got) {
		t.Fatalf("pod %+v matches %v, want %v", p, got, want)
	}
	if a.IsEmpty() && len(want) > 0 {
		t.Fatal("an account with room says that it is empty")
	}
}

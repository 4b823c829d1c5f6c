package reservation_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/reservation"
)

func TestWhatBecameOfAnAnnouncedPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		announced []string
		many      bool
		pending   []string
		users     []string
		want      reservation.Announcement
	}{
		"no pod is named":                        {want: reservation.NotAnnounced},
		"the named pod uses the reservation":     {announced: []string{"a"}, users: []string{"a"}},
		"another pod uses the reservation":       {announced: []string{"a"}, users: []string{"b"}},
		"the named pod has no node":              {[]string{"a"}, false, []string{"a"}, nil, reservation.Void},
		"another pod has no node":                {[]string{"a"}, false, []string{"b"}, nil, reservation.Spent},
		"the named pod is gone":                  {announced: []string{"a"}, want: reservation.Spent},
		"one of two named pods has no node":      {[]string{"a", "b"}, false, []string{"b"}, nil, reservation.Void},
		"the reservation is for many pods":       {announced: []string{"a"}, many: true},
		"it is kept for a named pod, unassigned": {[]string{"a"}, false, []string{"a"}, []string{"a"}, 0},
	} {
		a := reservation.NewAccount()
		four := amount.List{"cpu": 4}
		a.Put(&reservation.Spec{UID: "r", Node: "n", Once: !c.many, Announced: c.announced, Allocatable: four})
		for _, pod := range c.pending {
			a.SetPending(pod, true)
		}
		for _, pod := range c.users {
			a.Record(pod, "r", amount.List{"cpu": 1})
		}
		if got := a.Clone().Announcement("r"); got != c.want || a.Announcement("r") != c.want {
			t.Errorf("%s: %d, and %d of a copy, want %d", name, a.Announcement("r"), got, c.want)
		}
		possible := c.want == reservation.NotAnnounced && (c.many || len(c.users) == 0)
		err := a.Clone().Use("x", "r", nil)
		if (err == nil) != possible || err != nil && !errors.Is(err, reservation.ErrUsed) {
			t.Errorf("%s: a further pod: %v, want it possible: %v", name, err, possible)
		}
		left := a.Left("r")["cpu"]
		if c.want == reservation.Spent && left != 0 || c.want == reservation.Void && left != 4 {
			t.Errorf("%s: %d CPUs are left", name, left)
		}
	}
}

func TestAPodIsAnnouncedUnlessItIsNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec reservation.Spec
		want string
		err  error
	}{
		"for one pod":      {reservation.Spec{Node: "n", Once: true}, "r", nil},
		"for many":         {reservation.Spec{Node: "n"}, "", nil},
		"the pod is named": {reservation.Spec{Node: "n", Once: true, Announced: []string{"a"}}, "", nil},
		"another pod is named": {
			reservation.Spec{Node: "n", Once: true, Announced: []string{"b"}}, "", reservation.ErrUsed,
		},
		"the reservation is over":  {reservation.Spec{Once: true}, "", nil},
		"it was over and named it": {reservation.Spec{Once: true, Announced: []string{"b"}}, "", nil},
	} {
		a := reservation.NewAccount()
		c.spec.UID = "r"
		a.Put(&c.spec)
		a.Record("a", "r", nil)
		if got, err := a.Announce("a"); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v, want %q, %v", name, got, err, c.want, c.err)
		}
		if got, err := a.Announce("b"); got != "" || err != nil {
			t.Errorf("%s: a pod that uses nothing: %q, %v", name, got, err)
		}
	}
}

// cluster is an API server with one reservation for one pod, and a scheduler that learns of each change later.
type cluster struct {
	random *rand.Rand
	object reservation.Spec // Created counts its versions
	ended  bool
	pods   map[string]bool // that exist: whether each has a node
	used   []string        // pods that were bound to the reservation, ever

	account   *reservation.Account
	unseen    []func()        // changes of objects that the scheduler does not know
	seen      *cluster        // the object as the scheduler knows it
	queue     map[string]bool // pods that exist without a node, as the scheduler knows
	announced map[string]bool // pods whose announcement was written
	flying    []string        // pods whose Binding the API server may still carry out
	orphaned  []string        // flying ones of a scheduler that was killed
	version   int
}

func (c *cluster) put() {
	spec, version, ended := c.object, c.version, c.ended
	if ended {
		spec.Node, spec.Announced = "", nil
	}
	c.unseen = append(c.unseen, func() {
		c.account.Put(&spec)
		c.seen = &cluster{version: version, ended: ended}
	})
}

func (c *cluster) putPod(pod string) {
	node, exists := c.pods[pod]
	used := slices.Contains(c.used, pod)
	c.unseen = append(c.unseen, func() {
		switch {
		case !exists || node && !used:
			c.account.Release(pod)
		case node:
			c.account.Record(pod, "r", amount.List{"cpu": 1})
		}
		c.account.SetPending(pod, exists && !node)
		c.queue[pod] = exists && !node
	})
}

// write changes the reservation if the scheduler has its latest version.
func (c *cluster) write(owners []string, ended bool) bool {
	if c.seen.version != c.version || c.ended {
		return false
	}
	c.version++
	c.object.Announced, c.ended = owners, ended
	c.put()
	return true
}

// start kills the scheduler and starts another one, which knows all objects.
func (c *cluster) start() {
	c.orphaned = append(c.orphaned, c.flying...)
	c.flying, c.unseen, c.announced, c.queue = nil, nil, map[string]bool{}, map[string]bool{}
	c.account = reservation.NewAccount()
	c.put()
	for pod := range c.pods {
		c.putPod(pod)
	}
	for len(c.unseen) > 0 {
		c.learn()
	}
}

func (c *cluster) learn() {
	if len(c.unseen) > 0 {
		c.unseen[0]()
		c.unseen = c.unseen[1:]
	}
}

// land carries a Binding out, or loses it.
func (c *cluster) land(flying *[]string) {
	if len(*flying) == 0 {
		return
	}
	i := c.random.IntN(len(*flying))
	pod := (*flying)[i]
	*flying = slices.Delete(*flying, i, i+1)
	node, exists := c.pods[pod]
	if exists && !node && c.random.IntN(3) > 0 {
		c.pods[pod] = true
		c.used = append(c.used, pod)
		c.putPod(pod)
	} else if flying == &c.flying {
		c.account.Release(pod)
		delete(c.announced, pod)
	}
}

// reconcile writes the status as the scheduler does. It withdraws no announcement while a Binding of another process
// may still be carried out, and none of a pod that the API server knows to have a node.
func (c *cluster) reconcile() {
	bound := slices.ContainsFunc(c.account.Users("r"), func(pod string) bool { return slices.Contains(c.used, pod) })
	pending := slices.ContainsFunc(c.object.Announced, func(pod string) bool {
		node, exists := c.pods[pod]
		return exists && !node
	})
	switch what := c.account.Announcement("r"); {
	case bound || what == reservation.Spent:
		c.write(c.object.Announced, true)
	case what == reservation.Void && len(c.orphaned) == 0 && pending:
		c.write(nil, false)
	}
}

func (c *cluster) schedule(pod string) {
	switch {
	case !c.queue[pod] || slices.Contains(c.flying, pod) || slices.Contains(c.orphaned, pod):
	case c.account.UsedBy(pod) == "":
		_ = c.account.Use(pod, "r", amount.List{"cpu": 1})
	case c.announced[pod]:
		c.flying = append(c.flying, pod)
	case c.random.IntN(8) == 0: // another step of the cycle fails
		c.account.Release(pod)
	default:
		uid, err := c.account.Announce(pod)
		if err != nil || uid != "" && !c.write([]string{pod}, false) {
			c.account.Release(pod)
			return
		}
		c.announced[pod] = !c.seen.ended
	}
}

// TestAReservationForOnePodIsUsedOnce: whatever happens between any two steps, no two pods are ever bound to a
// reservation for one pod, and one that no pod used can be used in the end.
func TestAReservationForOnePodIsUsedOnce(t *testing.T) {
	t.Parallel()
	used, unused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		random := drawn(t)
		for range 60 {
			if wasUsed(t, random) {
				used++
			} else {
				unused++
			}
		}
	})
	if runs := used + unused; used < runs/10 || unused < runs/10 {
		t.Errorf("%d runs used the reservation and %d did not: too few of one", used, unused)
	}
}

// wasUsed takes random steps with a reservation for one pod, and reports whether a pod used it.
func wasUsed(t *rapid.T, random *rand.Rand) bool {
	c := &cluster{random: random, pods: map[string]bool{}}
	c.object = reservation.Spec{
		UID: "r", Node: "n", Once: true, Allocatable: amount.List{"cpu": 1},
		Owners: []reservation.Owner{{Selector: device.Selector{}}},
	}
	c.start()
	log, lives := []string{}, [3]int{} // a pod that is created again has another UID
	for step := range 40 {
		i := random.IntN(len(lives))
		pod := fmt.Sprintf("p%d.%d", i, lives[i])
		kind := random.IntN(18)
		log = append(log, fmt.Sprint(kind, " ", pod))
		switch kind {
		case 0:
			if _, exists := c.pods[pod]; !exists {
				c.pods[pod] = false
				c.putPod(pod)
			}
		case 1:
			if _, exists := c.pods[pod]; exists {
				delete(c.pods, pod)
				c.putPod(pod)
				lives[i]++
			}
		case 2:
			if random.IntN(3) == 0 {
				c.start()
			}
		case 3:
			c.land(&c.flying)
		case 4:
			c.land(&c.orphaned)
		case 5, 6:
			c.reconcile()
		case 7, 8:
			c.learn()
		default:
			c.schedule(pod)
		}
		if len(c.used) > 1 {
			t.Fatalf("step %d: %v were bound to the reservation:\n%v", step, c.used, log)
		}
	}
	for c.start(); len(c.orphaned) > 0; {
		c.land(&c.orphaned)
	}
	for range 50 {
		c.reconcile()
		c.learn()
	}
	if len(c.used) > 0 {
		if err := c.account.Use("new", "r", nil); !errors.Is(err, reservation.ErrUsed) {
			t.Fatalf("%v used the reservation, which a further pod may use: %v\n%v", c.used, err, log)
		}
		return true
	}
	if err := c.account.Use("new", "r", nil); err != nil && !c.ended && len(c.object.Announced) == 0 {
		t.Fatalf("no pod used the reservation, and none may: %v", err)
	}
	return false
}

package accounts_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/gang"
	"github.com/tenon-project/tenon/internal/core/load"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/testkit/grid"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// histories is how many random histories the property meets, unless -rapid.checks says otherwise.
const histories = 2000

func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(histories)); err != nil {
		panic(err)
	}
	m.Run()
}

// informer delivers what its test says.
type informer struct {
	cache.SharedIndexInformer
	handlers []cache.ResourceEventHandler
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	i.handlers = append(i.handlers, h)
	return nil, nil
}

func (i *informer) deliver(e event) {
	for _, h := range i.handlers {
		switch {
		case e.now == nil && e.missed:
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: e.old.GetName(), Obj: e.old})
		case e.now == nil:
			h.OnDelete(e.old)
		case e.old == nil:
			h.OnAdd(e.now, false)
		default:
			h.OnUpdate(e.old, e.now)
		}
	}
}

// cluster is all accounts, and the informers that they follow.
type cluster struct {
	accounts.Accounts
	table     accounts.Table
	informers map[string]*informer
}

func newCluster(t interface{ Fatalf(string, ...any) }) *cluster {
	now := func() time.Time { return noon }
	c := &cluster{
		accounts.Accounts{
			Nodes: kube.NewStore(), Quotas: kube.NewQuotas(now).UseDefaults(), Gangs: kube.NewGangs().UseDefaults(),
			Reservations: kube.NewReservations(nil, now), Loads: kube.NewLoads(), Kinds: &kube.Kinds{},
		},
		nil,
		map[string]*informer{},
	}
	c.Reservations.Profile = "tenon-scheduler"
	c.Loads.Enable(convert.LoadSettings{Factors: load.Percents{85, 70}}, time.Hour)
	c.Gangs.Inform(c.Quotas.SetGang)
	c.table = c.Table()
	for _, kind := range c.table {
		i := &informer{}
		c.informers[kind.Name] = i
		if _, err := kind.First(i).AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
			t.Fatalf("follow %s: %v", kind.Name, err)
		}
	}
	return c
}

// text says what the accounts have. That a gang has started once, or in part, is left out: the last objects do not say
// so.
func (c *cluster) text() string {
	var b strings.Builder
	for _, node := range []string{"n0", "n1", "n2"} {
		v := c.Nodes.View(node)
		fmt.Fprintf(&b, "node %s known %t version-free %+v\n", node, c.Nodes.Known(node) != nil, v.Summary())
		for e := range v.Entries() {
			fmt.Fprintf(&b, "  entry %+v\n", e)
		}
		loads := c.Loads.View(node)
		fmt.Fprintf(&b, "  uses %v prod %v pods %+v report %t\n", loads.Use(load.Measure{}), loads.ProdUse(),
			c.Loads.Pods(node), loads.Report != nil)
	}
	fmt.Fprintf(&b, "kinds %v %v\n", c.Kinds.List(), c.Nodes.Kinds().List())
	fmt.Fprintf(&b, "any static %t constrained %t inventory %t\n", c.Nodes.AnyStaticKubelet(), c.Nodes.AnyConstrained(),
		c.Nodes.AnyInventory())
	c.Quotas.Read(func(a *quota.Account) {
		for _, r := range a.Forest().Reports() {
			fmt.Fprintf(&b, "quota %+v\n", r)
		}
		fmt.Fprintf(&b, "quotas %x\n", a.Hash())
	})
	for _, name := range []string{"org", "a", "b"} {
		fmt.Fprintf(&b, "problems of %s: %q\n", name, c.Quotas.Problems(name))
	}
	c.Gangs.Read(func(s *gang.State) {
		for _, id := range s.Gangs() {
			r, _ := s.Find(id)
			if slices.ContainsFunc(r.Members, func(m gang.Member) bool { return m.Phase == gang.Bound }) {
				r.Why.Have = 0 // bound members that leave do not count where the start was interrupted
			}
			fmt.Fprintf(&b, "gang %s bond %+v settings %+v why %+v\n", id, s.Bond(id), r.Settings, r.Why)
			for _, m := range r.Members {
				fmt.Fprintf(&b, "  member %+v open %t\n", m, s.IsOpen(m.UID))
			}
		}
		fmt.Fprintf(&b, "layers %+v\n", s.Layers())
	})
	for _, uid := range c.Reservations.UIDs() {
		spec, used, users := c.Reservations.Usage(uid)
		_, pod := c.Reservations.Find(uid)
		fmt.Fprintf(&b, "reservation %s %+v used %v left %v available %v by", uid, spec, used,
			c.Reservations.Left(string(uid)), c.Reservations.Available(string(uid)))
		for _, p := range users {
			fmt.Fprintf(&b, " %s", p.UID)
		}
		if pod != nil {
			fmt.Fprintf(&b, " reserve pod on %q asks %v %v", pod.Spec.NodeName, convert.PodAmounts(pod),
				pod.Annotations)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestAccountsDependOnTheLastObjectsAlone: whatever has happened to the objects of a cluster, and in whichever order
// the events of two kinds come, the accounts are those that a new process makes of the objects that are left.
func TestAccountsDependOnTheLastObjectsAlone(t *testing.T) {
	t.Parallel()
	machines := []*topo.Machine{
		grid.Machine{Arch: "amd64", Nodes: 2, Cores: 2, Threads: 2}.Build(t),
		grid.Machine{Arch: "amd64", Nodes: 1, Cores: 4, Threads: 2}.Build(t),
	}
	rapid.Check(t, func(t *rapid.T) {
		h := live(t, machines)
		lived, rebuilt := newCluster(t), newCluster(t)
		kinds, events := h.interleaved()
		for i, e := range events {
			lived.informers[kinds[i]].deliver(e)
			if e.now != nil && rapid.IntRange(0, 19).Draw(t, "resync") == 0 {
				lived.informers[kinds[i]].deliver(event{old: e.now, now: e.now})
			}
		}
		var all []struct {
			kind string
			thing
		}
		for kind, objects := range h.now {
			for _, o := range objects {
				all = append(all, struct {
					kind string
					thing
				}{kind, o})
			}
		}
		slices.SortFunc(all, func(a, b struct {
			kind string
			thing
		},
		) int {
			return strings.Compare(a.GetResourceVersion(), b.GetResourceVersion())
		})
		if len(all) > 1 {
			all = rapid.Permutation(all).Draw(t, "order")
		}
		for _, o := range all {
			rebuilt.informers[o.kind].deliver(event{now: o.thing})
		}
		if diff := cmp.Diff(strings.Split(rebuilt.text(), "\n"), strings.Split(lived.text(), "\n")); diff != "" {
			t.Fatalf("accounts (-of the last objects +of the history):\n%s", diff)
		}
		for _, node := range []string{"n0", "n1", "n2"} {
			if !rebuilt.Nodes.View(node).Equal(lived.Nodes.View(node)) {
				t.Fatalf("the account of %s is another one:\n%+v\n%+v", node, rebuilt.Nodes.View(node),
					lived.Nodes.View(node))
			}
		}
	})
}

package ledger_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/topo"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/grid"
)

func percent(uid, gpu string, n int64) ledger.Entry {
	return ledger.Entry{UID: uid, Devices: []device.Grant{{
		Type: device.GPU, ID: gpu, Amount: device.Vector{device.Cores: n}, Ratio: n,
	}}}
}

// TestAccountsThatShareFramesAreAsEachByItself: what ledgers of many nodes share changes none of them.
func TestAccountsThatShareFramesAreAsEachByItself(t *testing.T) {
	t.Parallel()
	machines := []*topo.Machine{nil, grid.Machine{Cores: 4}.Build(t), grid.Machine{Cores: 4, Threads: 2}.Build(t)}
	idle := 0 // views without pods that two accounts have shared
	rapid.Check(t, func(t *rapid.T) {
		var shared ledger.Frames
		accounts, facts, pods := map[int]*ledger.Ledger{}, map[int]ledger.Facts{}, map[int][]ledger.Entry{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			node := rapid.IntRange(0, 3).Draw(t, "node")
			if accounts[node] == nil {
				accounts[node] = ledger.New(ledger.Facts{})
			}
			account := accounts[node]
			before := account.View()
			switch rapid.SampledFrom([]string{"facts", "facts", "facts", "put", "remove"}).Draw(t, "event") {
			case "facts":
				f := ledger.Facts{
					Machine:       rapid.SampledFrom(machines).Draw(t, "machine"),
					MinSharedCPUs: rapid.IntRange(0, 20).Draw(t, "floor"), // more than are kept of one machine
				}
				if rapid.IntRange(0, 3).Draw(t, "has devices") > 1 {
					f.Devices = gpus(t, f.Machine, "a", rapid.SampledFrom([]string{"b", "c"}).Draw(t, "GPU"))
				}
				shared.SetFacts(account, f)
				facts[node] = f
			case "put":
				pods[node] = []ledger.Entry{percent("pod", "b", 60)}
				account.Put(pods[node][0])
			case "remove":
				pods[node] = nil
				account.Remove("pod")
			}
			if account.View() != before && account.View().Version() <= before.Version() {
				t.Fatalf("version %d after %d", account.View().Version(), before.Version())
			}
			for other, account := range accounts {
				if !account.View().Equal(ledger.New(facts[other], pods[other]...).View()) {
					t.Fatalf("the account of %+v with %+v differs", facts[other], pods[other])
				}
				if other != node && account.View() == accounts[node].View() {
					idle++
				}
			}
		}
	})
	if idle == 0 {
		t.Error("no account shares a view with another one")
	}
}

// TestDevicesOfAnAccount: after every event the devices of the account are those of its facts and entries, with or
// without a machine; what was lent out is neither lost nor given twice while the Device object comes and goes.
func TestDevicesOfAnAccount(t *testing.T) {
	t.Parallel()
	taken, machines := 0, []*topo.Machine{nil, grid.Machine{Cores: 2}.Build(t)}
	rapid.Check(t, func(t *rapid.T) {
		account, entries, offers := ledger.New(ledger.Facts{}), map[string]ledger.Entry{}, map[string]ledger.Offer{}
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			uid := fmt.Sprint("pod-", rapid.IntRange(0, 4).Draw(t, "pod"))
			e := percent(uid, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "GPU"),
				int64(rapid.SampledFrom([]int{30, 60, 100}).Draw(t, "percent")))
			kinds := []string{"facts", "put", "remove", "commit", "commit", "revert"}
			switch rapid.SampledFrom(kinds).Draw(t, "event") {
			case "facts":
				f := ledger.Facts{Machine: rapid.SampledFrom(machines).Draw(t, "machine")}
				if rapid.IntRange(0, 3).Draw(t, "has devices") > 0 {
					f.Devices = gpus(t, f.Machine, "a", "b")
				}
				account.SetFacts(f)
			case "put":
				account.Put(e)
				entries[uid] = e
				delete(offers, uid)
			case "remove":
				account.Remove(uid)
				delete(entries, uid)
				delete(offers, uid)
			case "commit":
				o := ledger.Offer{Entry: e, Version: account.View().Version()}
				_, known := entries[uid]
				ok := !known && account.View().Devices().Admits(&device.Holding{UID: uid, Grants: e.Devices}).OK()
				if err := account.Commit(o); (err == nil) != ok || err != nil && !errors.Is(err, ledger.ErrTaken) {
					t.Fatalf("commit of %+v: %v, want it to be taken: %v", e, err, ok)
				}
				if ok {
					entries[uid], offers[uid] = e, o
					taken++
				}
			case "revert":
				if o, assumed := offers[uid]; assumed {
					account.Revert(o)
					delete(entries, uid)
					delete(offers, uid)
				}
			}
			checkDevices(t, account.View(), maps.Values(entries))
		}
	})
	if taken == 0 {
		t.Error("no offer was taken: the generator is too narrow")
	}
}

// checkDevices adds up by hand what pods hold.
func checkDevices(t *rapid.T, v *ledger.View, entries iter.Seq[ledger.Entry]) {
	if (v.Devices() == nil) != (v.Facts().Devices == nil) {
		t.Fatalf("devices %v with facts %v", v.Devices(), v.Facts().Devices)
	}
	if rebuilt := ledger.New(*v.Facts(), slices.Collect(entries)...).View(); !rebuilt.Equal(v) {
		t.Fatalf("the account differs from one that is rebuilt")
	}
	if v.Devices() == nil {
		return
	}
	used := map[string]int64{}
	for e := range entries {
		used[e.Devices[0].ID] += e.Devices[0].Amount[device.Cores]
	}
	for d := range v.Devices().Devices() {
		if d.Used[device.Cores] != used[d.ID] || d.Free[device.Cores] != max(100-used[d.ID], 0) {
			t.Fatalf("GPU %s: %d used and %d free, want %d used", d.ID, d.Used[device.Cores], d.Free[device.Cores],
				used[d.ID])
		}
	}
}

// TestUnknownHolders: a pod counts that requests devices, has none of Tenon and is not reported; a name that no device
// has counts too. The order of events does not matter, and neither does a machine.
func TestUnknownHolders(t *testing.T) {
	t.Parallel()
	most, machines := 0, []*topo.Machine{nil, grid.Machine{Cores: 2}.Build(t)}
	rapid.Check(t, func(t *rapid.T) {
		account, entries, reported := ledger.New(ledger.Facts{}), map[string]ledger.Entry{}, map[string]bool{}
		unknown, devices := 0, false
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			uid := fmt.Sprint("pod-", rapid.IntRange(0, 4).Draw(t, "pod"))
			switch rapid.SampledFrom([]string{"facts", "put", "put", "remove"}).Draw(t, "event") {
			case "facts":
				f := ledger.Facts{Machine: rapid.SampledFrom(machines).Draw(t, "machine")}
				clear(reported)
				unknown = 0
				if devices = rapid.IntRange(0, 4).Draw(t, "has devices") > 0; devices {
					s := device.Spec{Devices: []device.Device{{Type: device.GPU, ID: "a"}}}
					for _, minor := range rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "reported") {
						who := fmt.Sprint("pod-", minor)
						name := rapid.SampledFrom([]string{"a", "a::1", "x"}).Draw(t, "name")
						s.Foreign = append(s.Foreign, device.Foreign{UID: who, Names: []string{name}})
						reported[who] = true
						if name == "x" {
							unknown++
						}
					}
					inv, err := device.NewInventory(&s, f.Machine, nil)
					testkit.Check(t, err)
					f.Devices = inv
				}
				account.SetFacts(f)
			case "put":
				e := percent(uid, "a", 50)
				if e.Unallocated = rapid.IntRange(0, 2).Draw(t, "unallocated") > 0; e.Unallocated {
					e.Devices = e.Devices[:rapid.IntRange(0, 1).Draw(t, "has some all the same")]
				}
				account.Put(e)
				entries[uid] = e
			case "remove":
				account.Remove(uid)
				delete(entries, uid)
			}
			want := unknown
			for uid, e := range entries {
				if devices && e.Unallocated && len(e.Devices) == 0 && !reported[uid] {
					want++
				}
			}
			most = max(most, want)
			if got := account.View().UnknownHolders(); got != want {
				t.Fatalf("%d unknown holders, want %d: entries %v, reported %v", got, want, entries, reported)
			}
			rebuilt := ledger.New(*account.View().Facts(), slices.Collect(maps.Values(entries))...).View()
			if rebuilt.UnknownHolders() != want || !rebuilt.Equal(account.View()) {
				t.Fatalf("rebuilt: %d unknown holders, want %d", rebuilt.UnknownHolders(), want)
			}
		}
	})
	if most < 3 && !testing.Short() {
		t.Errorf("at most %d unknown holders: the generator is too narrow", most)
	}
}

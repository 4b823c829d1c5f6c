package view_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/quota"
	"github.com/tenon-project/tenon/internal/view"
)

func number(_ string, n int64) string { return strconv.FormatInt(n, 10) }

// seedForest is the example of seed 003, in whole units: total 100, pool 45 → 14, 12 and 19, then 9 → 3 and 6.
func seedForest() *quota.Forest {
	f := quota.New(quota.Config{ScaleMin: true})
	f.SetNodes(amount.List{"unit": 100})
	for _, q := range []struct {
		name                    string
		floor, ceiling, request int64
	}{{"d", 15, 80, 70}, {"a", 10, 40, 5}, {"c", 20, 50, 40}, {"b", 15, 60, 20}} {
		f.Set(quota.Spec{
			Name: q.name, Min: amount.List{"unit": q.floor}, Max: amount.List{"unit": q.ceiling},
		})
		f.Add(f.Find(q.name), quota.Request, f.Vector(amount.List{"unit": q.request}))
	}
	return f
}

func described(f *quota.Forest) (out []view.Quota) {
	exact := f.Shares()
	for _, r := range f.Reports() {
		q := view.QuotaOf(f, f.Find(r.Name), number)
		q.AddDivisions(f, f.Find(r.Name), exact)
		out = append(out, q)
	}
	return out
}

func TestTheQuotasOfTheSeed(t *testing.T) {
	t.Parallel()
	f := seedForest()
	q := view.QuotaOf(f, f.Find("c"), number)
	q.AddDivisions(f, f.Find("c"), f.Shares())
	unit := func(n string) map[string]string { return map[string]string{"unit": n} }
	want := view.Quota{
		Name: "c", Parent: quota.Root, Path: []string{"c"}, Lends: true, Max: unit("50"), Min: unit("20"),
		EffectiveMin: unit("20"), Weight: unit("50"), Runtime: unit("35"), ExactShare: unit("35.385"), Used: unit("0"),
		Lent: unit("0"), Borrowed: unit("15"), Request: unit("40"), ChildRequest: unit("40"),
		NonPreemptibleRequest: unit("0"), NonPreemptibleUsed: unit("0"), Allocated: unit("0"), Guaranteed: unit("20"),
		Trace: map[string]quota.Trace{"unit": {
			Total: 100, EffectiveMin: 20, Limited: 40, Base: 20, Pool: 45,
			Rounds: []quota.Round{{Pool: 45, Weights: 190, Got: 12}, {Pool: 9, Weights: 130, Got: 3}},
		}},
	}
	if diff := cmp.Diff(want, q); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tables := view.QuotaTables(described(f), view.QuotaColumns())
	tables = append(tables, view.DivisionTables(described(f), number, nil)...)
	if diff := cmp.Diff([]view.QuotaTable{
		{Rows: [][]string{
			{"QUOTA (unit)", "MIN", "MAX", "RUNTIME", "REQUEST", "USED", "LENT", "BORROWED"},
			{quota.Root, "100", "100", "100", "135", "0", "0", "0"},
			{"  a", "10", "40", "5", "5", "0", "5", "0"},
			{"  b", "15", "60", "20", "20", "0", "0", "5"},
			{"  c", "20", "50", "35", "40", "0", "0", "15"},
			{"  d", "15", "80", "40", "70", "0", "0", "25"},
		}},
		{Title: "unit below koordinator-root-quota: total 100, pool 45 above the bases", Rows: [][]string{
			{"QUOTA", "WEIGHT", "MIN", "REQUEST", "BASE", "ROUND 1: 45", "ROUND 2: 9", "RUNTIME"},
			{"a", "40", "10", "5", "5", "-", "-", "5"},
			{"b", "60", "15", "20", "15", "+14 -9", "-", "20"},
			{"c", "50", "20", "40", "20", "+12", "+3", "35"},
			{"d", "80", "15", "70", "15", "+19", "+6", "40"},
		}},
	}, tables); diff != "" {
		t.Errorf("tables (-want +got):\n%s", diff)
	}
}

func TestAQuotaThatDoesNotLendAsksForItsMin(t *testing.T) {
	t.Parallel()
	f := seedForest()
	f.Set(quota.Spec{Name: "a", KeepsMin: true, Min: amount.List{"unit": 10}, Max: amount.List{"unit": 40}})
	q := view.QuotaOf(f, f.Find("a"), number)
	if q.Request["unit"] != "10" || q.ChildRequest["unit"] != "5" || q.Lends || q.Lent["unit"] != "0" {
		t.Errorf("got request %v of %v, lent %v", q.Request, q.ChildRequest, q.Lent)
	}
}

func TestTablesFollowTheTrees(t *testing.T) {
	t.Parallel()
	f := seedForest()
	f.Set(quota.Spec{Name: "a", IsParent: true}) // limits nothing, has children that do
	f.Set(quota.Spec{Name: "under-a", Parent: "a", Max: amount.List{"unit": 9}})
	f.Set(quota.Spec{
		Name: "apart", Tree: "t", IsRoot: true, Total: amount.List{"unit": 7}, Max: amount.List{"unit": 8},
	})
	f.Set(quota.Spec{Name: "bb", Max: amount.List{"thing": 1}})
	names := func(quotas []view.Quota) (out []string) {
		for _, row := range view.QuotaTables(quotas, view.QuotaColumns())[1].Rows {
			out = append(out, row[0])
		}
		return out
	}
	all := described(f)
	want := []string{"QUOTA (unit)", quota.Root, "  a", "    under-a", "  b", "  c", "  d", "apart"}
	if diff := cmp.Diff(want, names(all)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	slices.Reverse(all)
	if diff := cmp.Diff(want, names(all)); diff != "" {
		t.Errorf("in another order (-want +got):\n%s", diff)
	}
	some := slices.DeleteFunc(all, func(q view.Quota) bool { return q.Name == quota.Root || q.Name == "apart" })
	if diff := cmp.Diff([]string{"QUOTA (unit)", "a", "  under-a", "b", "c", "d"}, names(some)); diff != "" {
		t.Errorf("without the top (-want +got):\n%s", diff)
	}
	got := fmt.Sprint(view.DivisionTables(described(f), number, []string{"a"}))
	if want := "[{unit below a: total "; len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("divisions below a: %s", got)
	}
}

func TestBorrowersAreNamedWhereTheyHaveWhatIsMissing(t *testing.T) {
	t.Parallel()
	a := quota.NewAccount(quota.Config{ScaleMin: true}, quota.Rules{})
	a.SetNodes(amount.List{"unit": 10})
	for name, ceiling := range map[string]int64{"lender": 10, "borrower": 10, "capped": 4} {
		a.Set(quota.Spec{Name: name, Min: amount.List{"unit": 2}, Max: amount.List{"unit": ceiling}})
	}
	put := func(uid, quotaName, node string, n int64) {
		a.Put(quota.Pod{UID: uid, Quota: quotaName, Node: node, Amounts: amount.List{"unit": n}})
	}
	put("held", "borrower", "n", 8)
	put("wants", "lender", "", 5)
	put("much", "capped", "", 5)
	limit := func(uid string) *view.QuotaLimit {
		x := a.Admit(uid)
		if x == nil {
			t.Fatalf("%s is admitted", uid)
		}
		return view.QuotaLimitOf(a.Forest(), x, number, func(string) bool { return true })
	}
	want := &view.QuotaLimit{
		Quota: "lender", Path: []string{"lender"}, LimitKind: "runtime", Shortages: []view.QuotaShortage{{
			Dimension: "unit", Limit: "3", Used: "0", Request: "5",
			Borrowers: []view.Borrower{{Quota: "borrower", Used: "8", Min: "2", Borrowed: "6"}},
		}},
	}
	if diff := cmp.Diff(want, limit("wants")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a.SetNodes(amount.List{"unit": 100})
	if got := limit("much"); len(got.Shortages) != 1 || len(got.Shortages[0].Borrowers) != 0 {
		t.Errorf("a quota at its own max blames borrowers: %+v", got)
	}
}

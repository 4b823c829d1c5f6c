package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/internal/core/quota"
)

// QuotaTable is a table of quotas: rows of cells, the first with the names of the columns.
type QuotaTable struct {
	Title string // "" for none
	Rows  [][]string
}

// absent is the cell of an amount that a quota does not have.
const absent = "-"

// QuotaColumn is a column behind the name of a quota. Cell returns "" where the quota has no such value.
type QuotaColumn struct {
	Name string
	Cell func(q *Quota, resource string) string
}

func amountColumn(name string, amounts func(*Quota) map[string]string) QuotaColumn {
	return QuotaColumn{name, func(q *Quota, resource string) string { return amounts(q)[resource] }}
}

// QuotaColumns are the columns that a user of a quota looks at first.
func QuotaColumns() []QuotaColumn {
	return []QuotaColumn{
		amountColumn("MIN", func(q *Quota) map[string]string { return q.Min }),
		amountColumn("MAX", func(q *Quota) map[string]string { return q.Max }),
		amountColumn("RUNTIME", func(q *Quota) map[string]string { return q.Runtime }),
		amountColumn("REQUEST", func(q *Quota) map[string]string { return q.ChildRequest }),
		amountColumn("USED", func(q *Quota) map[string]string { return q.Used }),
		amountColumn("LENT", func(q *Quota) map[string]string { return q.Lent }),
		amountColumn("BORROWED", func(q *Quota) map[string]string { return q.Borrowed }),
	}
}

// MoreQuotaColumns are the columns that explain how the runtime comes about.
func MoreQuotaColumns() []QuotaColumn {
	return []QuotaColumn{
		amountColumn("WEIGHT", func(q *Quota) map[string]string { return q.Weight }),
		amountColumn("SCALED MIN", func(q *Quota) map[string]string { return q.EffectiveMin }),
		amountColumn("NOT PREEMPTIBLE", func(q *Quota) map[string]string { return q.NonPreemptibleUsed }),
		{"LENDS", func(q *Quota, _ string) string { return strconv.FormatBool(q.Lends) }},
		{"TREE", func(q *Quota, _ string) string { return q.Tree }},
	}
}

// QuotaTables returns a table for each resource that a max names: a row for each quota, below its parent and indented.
// Quotas are left out that neither have the resource nor have one below them that has it.
func QuotaTables(quotas []Quota, columns []QuotaColumn) (tables []QuotaTable) {
	nodes := treeOf(quotas)
	for _, resource := range limitedResources(quotas) {
		head := []string{"QUOTA (" + resource + ")"}
		for _, c := range columns {
			head = append(head, c.Name)
		}
		t := QuotaTable{Rows: [][]string{head}}
		below := -1 // depth of the last row
		for _, q := range slices.Backward(nodes) {
			_, limited := q.Max[resource]
			if _, asked := q.ChildRequest[resource]; !limited && !asked && q.depth >= below {
				continue
			}
			below = q.depth
			cells := []string{strings.Repeat("  ", q.depth) + q.Name}
			for _, c := range columns {
				cells = append(cells, cmp.Or(c.Cell(&q.Quota, resource), absent))
			}
			t.Rows = slices.Insert(t.Rows, 1, cells)
		}
		tables = append(tables, t)
	}
	return tables
}

// DivisionTables returns a table for each resource and each set of siblings that divide it: what each got in each
// round. Of nil parents all sets are shown, else those of the children of these.
func DivisionTables(quotas []Quota, text AmountText, parents []string) (tables []QuotaTable) {
	sets := map[string][]Quota{}
	for _, q := range treeOf(quotas) {
		sets[q.Parent] = append(sets[q.Parent], q.Quota)
	}
	for _, resource := range limitedResources(quotas) {
		for _, q := range treeOf(quotas) {
			if parents != nil && !slices.Contains(parents, q.Name) {
				continue
			}
			divided := slices.DeleteFunc(slices.Clone(sets[q.Name]), func(c Quota) bool {
				_, divided := c.Trace[resource]
				return !divided
			})
			if len(divided) > 0 {
				tables = append(tables, division(q.Name, resource, divided, text))
			}
		}
	}
	return tables
}

func division(parent, resource string, children []Quota, text AmountText) QuotaTable {
	format := func(n int64) string { return text(resource, n) }
	trace := children[0].Trace[resource]
	t := QuotaTable{Title: fmt.Sprintf("%s below %s: total %s, pool %s above the bases", resource, parent,
		format(trace.Total), format(trace.Pool))}
	var rounds []quota.Round // the longest list has them all
	for _, c := range children {
		if own := c.Trace[resource].Rounds; len(own) > len(rounds) {
			rounds = own
		}
	}
	head := []string{"QUOTA", "WEIGHT", "MIN", "REQUEST", "BASE"}
	for i, r := range rounds {
		head = append(head, fmt.Sprintf("ROUND %d: %s", i+1, format(r.Pool)))
	}
	t.Rows = append(t.Rows, append(head, "RUNTIME"))
	for _, c := range children {
		own := c.Trace[resource]
		cells := []string{c.Name, c.Weight[resource], format(own.EffectiveMin), format(own.Limited), format(own.Base)}
		for i := range rounds {
			cell := absent
			if i < len(own.Rounds) {
				cell = "+" + format(own.Rounds[i].Got)
				if back := own.Rounds[i].Returned; back > 0 {
					cell += " -" + format(back)
				}
			}
			cells = append(cells, cell)
		}
		t.Rows = append(t.Rows, append(cells, c.Runtime[resource]))
	}
	return t
}

// limitedResources are those that the max of some quota names. What the cluster has in all does not count.
func limitedResources(quotas []Quota) []string {
	named := map[string]bool{}
	for _, q := range quotas {
		for resource := range q.Max {
			named[resource] = named[resource] || q.Name != quota.Root
		}
	}
	maps.DeleteFunc(named, func(_ string, limited bool) bool { return !limited })
	return slices.Sorted(maps.Keys(named))
}

type quotaNode struct {
	Quota
	depth int
}

// treeOf returns each quota before those below it, siblings by name. One whose parent is not among them is a top.
func treeOf(quotas []Quota) (nodes []quotaNode) {
	known, below := map[string]bool{}, map[string][]Quota{}
	for _, q := range quotas {
		known[q.Name] = true
	}
	for _, q := range quotas {
		parent := q.Parent
		if !known[parent] {
			parent = ""
		}
		below[parent] = append(below[parent], q)
	}
	var add func(parent string, depth int)
	add = func(parent string, depth int) {
		slices.SortFunc(below[parent], func(a, b Quota) int {
			return cmp.Or(cmp.Compare(rank(a.Name), rank(b.Name)), cmp.Compare(a.Name, b.Name))
		})
		for _, q := range below[parent] {
			nodes = append(nodes, quotaNode{q, depth})
			add(q.Name, depth+1)
		}
	}
	add("", 0)
	return nodes
}

// rank puts the default tree before the others, and what is outside of all trees last.
func rank(name string) int {
	switch name {
	case quota.Root:
		return 0
	case quota.System, quota.Default:
		return 2
	}
	return 1
}

package why_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/core/why"
	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

func TestMessage(t *testing.T) {
	t.Parallel()
	smt := why.Reason{Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: 3, Extra: 2}
	taint := func(n int, detail string) []why.Finding {
		findings := nodes("t"+detail, n, plain(why.TaintToleration))
		for i := range findings {
			findings[i].Detail = detail
		}
		return findings
	}
	tests := map[string]struct {
		findings []why.Finding
		nodes    int
		want     string
	}{
		"nodes counted by phrase, most first": {
			findings: slices.Concat(nodes("b", 18, short(why.InsufficientCPU, 1, 3)), nodes("a", 80, smt)), nodes: 98,
			want: `SMTAlignment: 0/98 nodes are available: 80 node(s) requested cpus not multiple cpus per core, 18 ` +
				`Insufficient cpu. ` +
				`{"code":"SMTAlignment","nodes":80,"asked":3,"threadsPerCore":2}`,
		},
		"have, need and where of the closest node": {
			findings: nodes("a", 2, why.Reason{
				Code: why.TopologyPolicy, Resource: why.CPU, Unit: why.CPUs, Asked: 8, Free: 7, Extra: 1,
				Where: why.Where{Scope: why.NUMA, Index: 1},
			}), nodes: 2,
			want: `TopologyPolicy: 0/2 nodes are available: 2 node(s) NUMA Topology policy not match. ` +
				`{"code":"TopologyPolicy","nodes":2,"asked":8,"free":7,"numaNodes":1,"resource":"cpu","unit":"CPUs",` +
				`"where":"numa 1"}`,
		},
		"upstream plugins speak for themselves": {
			findings: slices.Concat(taint(2, "node(s) had untolerated taint {a: b}"),
				taint(1, "node(s) had untolerated taint {c: d}.")), nodes: 3,
			want: `TaintToleration: 0/3 nodes are available: 2 node(s) had untolerated taint {a: b}, 1 node(s) had ` +
				`untolerated taint {c: d}. ` +
				`{"code":"TaintToleration","nodes":3}`,
		},
		"a code that is asked once counts no nodes": {
			findings: []why.Finding{once(why.BadAnnotation, why.PreFilter, "resource-spec: unexpected end\n of JSON.")},
			nodes:    7,
			want: `BadAnnotation: invalid annotation: resource-spec: unexpected end of JSON. ` +
				`{"code":"BadAnnotation"}`,
		},
		"preemption is reported last": {
			findings: slices.Concat(nodes("a", 1, short(why.InsufficientCPU, 1, 3)),
				preempting(nodes("a", 1, plain(why.NoVictims)))), nodes: 1,
			want: `InsufficientCPU: 0/1 nodes are available: 1 Insufficient cpu. preemption: 1 No preemption victims ` +
				`found for incoming pod. ` +
				`{"code":"InsufficientCPU","nodes":1,"asked":3,"free":1,"resource":"cpu","unit":"CPUs"}`,
		},
		"preemption alone": {
			findings: preempting(nodes("a", 1, plain(why.VictimsTerminating))), nodes: 1,
			want: `VictimsTerminating: preemption: 1 waiting for pods on the nominated node to terminate. ` +
				`{"code":"VictimsTerminating","nodes":1}`,
		},
		"a floor of the shared pool, on a node that has too few CPUs": {
			findings: nodes("a", 1, short(why.InsufficientCPU, 1, 3), plain(why.SharedPoolFloor)), nodes: 1,
			want: `InsufficientCPU: 0/1 nodes are available: 1 Insufficient cpu. ` +
				`{"code":"InsufficientCPU","nodes":1,"asked":3,"free":1,"resource":"cpu","unit":"CPUs"}`,
		},
		"nothing refused": {},
		"a reason without a code is not counted": {
			findings: append(nodes("a", 1, short(why.InsufficientCPU, 1, 3)), nodes("b", 2, why.Reason{})...), nodes: 1,
			want: `InsufficientCPU: 0/1 nodes are available: 1 Insufficient cpu. ` +
				`{"code":"InsufficientCPU","nodes":1,"asked":3,"free":1,"resource":"cpu","unit":"CPUs"}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, why.Message(test.findings, test.nodes)); diff != "" {
				t.Errorf("message (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLongMessagesAreShortenedAtAClause(t *testing.T) {
	t.Parallel()
	var findings []why.Finding
	for i := range 40 {
		f := nodes(fmt.Sprint("n", i), 40-i, plain(why.UpstreamFilter))
		for j := range f {
			f[j].Detail = fmt.Sprintf("plugin %02d does not like this node", i)
		}
		findings = append(findings, f...)
	}
	got := why.Message(findings, 820)
	if len(got) > why.MaxMessage || len(got) < why.MaxMessage-60 {
		t.Errorf("%d bytes, want just below %d", len(got), why.MaxMessage)
	}
	if !strings.Contains(got, "like this node … and ") ||
		!strings.HasSuffix(got, ` more reasons. {"code":"UpstreamFilter","nodes":820}`) {
		t.Errorf("not shortened at a clause:\n%s", got)
	}
}

func TestTextIsHalfAMessageWithoutItsTail(t *testing.T) {
	t.Parallel()
	if got := why.Text(nil, 3); got != "" {
		t.Errorf("nothing refused: got %q", got)
	}
	few := nodes("a", 2, short(why.InsufficientCPU, 1, 3))
	if got, want := why.Text(few, 3), "InsufficientCPU: 0/3 nodes are available: 2 Insufficient cpu."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	detail := strings.Repeat("é", why.MaxMessage)
	got := why.Text([]why.Finding{once(why.BadAnnotation, why.PreFilter, detail)}, 3)
	if len(got) > why.MaxMessage/2 || len(got) < why.MaxMessage/2-2 || !utf8.ValidString(got) {
		t.Errorf("%d bytes of a long detail, valid UTF-8 %t", len(got), utf8.ValidString(got))
	}
	if !strings.HasSuffix(got, "é….") {
		t.Errorf("the cut is not marked: %q", got)
	}
}

// TestWhatExactlyFitsIsNotCut lets one detail grow by a byte until what follows it no longer fits: the last text before
// that fills all of its room.
func TestWhatExactlyFitsIsNotCut(t *testing.T) {
	t.Parallel()
	for shown, beside := range map[string][]why.Finding{
		", 1 Insufficient cpu.": nodes("b", 1, short(why.InsufficientCPU, 1, 3)),
		" preemption: ":         preempting(nodes("a", 1, plain(why.NoVictims))),
	} {
		longest := 0
		for n := range why.MaxMessage {
			upstream := nodes("a", 2, plain(why.UpstreamFilter))
			for i := range upstream {
				upstream[i].Detail = "no " + strings.Repeat("x", n)
			}
			got := why.Text(append(upstream, beside...), 3)
			if len(got) > why.MaxMessage/2 {
				t.Fatalf("%d bytes", len(got))
			}
			if strings.Contains(got, shown) {
				longest = len(got)
			}
		}
		if longest != why.MaxMessage/2 {
			t.Errorf("the longest text with %q has %d bytes, want %d", shown, longest, why.MaxMessage/2)
		}
	}
}

// TestMessagesAreBounded is W8: whatever plugins say, the message is below the limit and keeps code and JSON.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		findings := drawFindings(t)
		root := why.Root(findings)
		message := why.Message(findings, 5)
		if root.OK() {
			if message != "" {
				t.Fatalf("nothing refused, message %q", message)
			}
			return
		}
		if len(message) > why.MaxMessage || !utf8.ValidString(message) || strings.ContainsAny(message, "\n\r") {
			t.Fatalf("%d bytes: %q", len(message), message)
		}
		if !strings.HasPrefix(message, root.Code.String()+": ") || !strings.HasSuffix(message, " "+root.Flat()) {
			t.Fatalf("root %v: %q", root.Code, message)
		}
	})
}

// TestSurfacesAgree renders one obstacle as the object and as the flat tail, and compares code, nodes and parameters.
func TestSurfacesAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		for _, o := range why.Obstacles(drawFindings(t)) {
			text, err := json.Marshal(o.Wire())
			testkit.Check(t, err)
			var wire why.Wire
			if err := json.Unmarshal(text, &wire); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			var flat map[string]any
			if err := json.Unmarshal([]byte(o.Flat()), &flat); err != nil {
				t.Fatalf("%s: %v", o.Flat(), err)
			}
			want := map[string]any{"code": wire.Code.String()}
			if wire.Nodes > 0 {
				want["nodes"] = float64(wire.Nodes)
			}
			if wire.Where != "" {
				want["where"] = wire.Where
			}
			for name, value := range wire.Params {
				want[name] = value
			}
			if diff := cmp.Diff(want, flat); diff != "" {
				t.Fatalf("object and tail differ (-object +tail):\n%s", diff)
			}
		}
	})
}

func TestParseMessage(t *testing.T) {
	t.Parallel()
	smt := why.Reason{Code: why.SMTAlignment, Resource: why.CPU, Unit: why.CPUs, Asked: 3, Extra: 2}
	text := "0/2 nodes are available: 2 node(s) requested cpus not multiple cpus per core."
	for name, c := range map[string]struct {
		message string
		want    why.Wire
		ok      bool
	}{
		"of this scheduler": {
			why.Message(nodes("a", 2, smt), 2),
			why.Wire{
				Code: why.SMTAlignment, Class: "Placement", Nodes: 2, Message: text,
				Params: map[string]any{"asked": 3.0, "threadsPerCore": 2.0},
			},
			true,
		},
		"with a place": {
			`TopologyPolicy: no. {"code":"TopologyPolicy","where":"numa 1"}`,
			why.Wire{Code: why.TopologyPolicy, Class: "Placement", Where: "numa 1", Message: "no."},
			true,
		},
		"cut off in its JSON": {
			`SMTAlignment: no. {"code`,
			why.Wire{Code: why.SMTAlignment, Class: "Placement", Message: `no. {"code`},
			true,
		},
		"without JSON": {
			"SMTAlignment: no.", why.Wire{Code: why.SMTAlignment, Class: "Placement", Message: "no."}, true,
		},
		"of another scheduler":          {message: "0/2 nodes are available: 2 Insufficient cpu."},
		"a code that is not the head":   {message: `no {"code":"SMTAlignment"}`},
		"a code that is not registered": {message: "Tired: no."},
	} {
		got, ok := why.ParseMessage(c.message)
		if diff := cmp.Diff(c.want, got); diff != "" || ok != c.ok {
			t.Errorf("%s: %t, want %t (-want +got):\n%s", name, ok, c.ok, diff)
		}
	}
}

func TestWire(t *testing.T) {
	t.Parallel()
	o := why.Root(nodes("a", 2, why.Reason{
		Code: why.InsufficientExclusiveCPU, Resource: why.CPU, Unit: why.CPUs, Asked: 8, Free: 7,
		Where: why.Where{Scope: why.NUMA, Index: 1},
	}))
	text, err := json.Marshal(o.Wire())
	want := `{"code":"InsufficientExclusiveCPU","class":"Placement","plugin":"NodeNUMAResource","phase":"Filter",` +
		`"nodes":2,"example":"a-0",` +
		`"where":"numa 1","params":{"asked":8,"free":7,"resource":"cpu","unit":"CPUs"},"message":"not enough cpus ` +
		`available to satisfy request"}`
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
}

func TestMemoryThatIsShortOnTheAlignedNodesIsNamed(t *testing.T) {
	t.Parallel()
	r := why.Reason{
		Code: why.TopologyPolicy, Resource: why.Memory, Unit: why.Bytes, Asked: 8 << 30, Free: 4 << 30,
		Where: why.Where{Scope: why.NUMA},
	}
	if got, want := r.Text(), "node(s) NUMA Topology policy not match: memory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := r.HaveNeed(), "4/8 GiB on numa 0"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Resource = why.CPU
	if got, want := r.Text(), "node(s) NUMA Topology policy not match"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMismatchSaysWhatEachResourceNeeds(t *testing.T) {
	t.Parallel()
	r := why.Reason{Code: why.TopologyMismatch, Resource: why.Memory, Asked: 2, Free: 1}
	if got, want := r.Text(),
		"node(s) NUMA Topology policy not match: cpu needs 1 NUMA node, memory needs 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r = why.Reason{Code: why.TopologyMismatch, Resource: "hugepages-1Gi", Asked: 1, Free: 2}
	if got, want := r.Text(),
		"node(s) NUMA Topology policy not match: cpu needs 2 NUMA nodes, hugepages-1Gi needs 1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := r.HaveNeed(); got != "" {
		t.Errorf("have and need %q of a code that is not about an amount", got)
	}
}

package inject_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// drawn is a random machine with a random container, and what the test knows of both.
type drawn struct {
	node      *inject.Node
	container inject.Container
	// own are the cards that were allocated to the container.
	own []host.Card
	// clean: no other writer gives the container a device, and nothing is wrong with its pod.
	clean bool
}

func draw(t *rapid.T) drawn {
	d := drawn{node: &inject.Node{}, clean: true}
	d.node.Mode = rapid.SampledFrom([]string{"Own", "Own", "Moving", ""}).Draw(t, "mode")
	if d.node.Mode != "" {
		d.node.Types = rapid.SampledFrom([][]string{{"gpu"}, {"fpga", "gpu", "rdma"}, {"rdma"}}).Draw(t, "types")
	}
	cards := &d.node.Cards
	cards.Common = map[host.CardKind][]host.DeviceFile{
		host.NVIDIA: {file("/dev/nvidiactl", 195, 255)}, host.AMD: {file("/dev/kfd", 234, 0)},
		host.RDMA: {file("/dev/infiniband/rdma_cm", 10, 58)},
	}
	minors := rapid.Permutation([]int64{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "minors")
	for i, kind := range rapid.SliceOfN(rapid.SampledFrom([]host.CardKind{
		host.NVIDIA, host.NVIDIA, host.AMD, host.RDMA,
		host.FPGA,
	}), 0, 8).Draw(t, "kinds") {
		c := host.Card{Kind: kind, BusID: fmt.Sprintf("0000:%02x:00.0", i)}
		c.ID = c.BusID
		major := map[host.CardKind]int64{host.NVIDIA: 195, host.AMD: 226, host.RDMA: 231, host.FPGA: 236}[kind]
		if kind.Type() == "gpu" {
			c.ID = fmt.Sprint("GPU-", minors[i])
		}
		c.Files = []host.DeviceFile{file(fmt.Sprintf("/dev/%s%d", kind, minors[i]), major, minors[i])}
		cards.List = append(cards.List, c)
		if rapid.Bool().Draw(t, "CDI") {
			d.node.CDI = append(d.node.CDI, "tenon.sh/"+kind.Type()+"="+c.ID)
		}
		if kind == host.NVIDIA && rapid.Bool().Draw(t, "the toolkit's CDI") {
			d.node.CDI = append(d.node.CDI, "nvidia.com/gpu="+c.ID)
		}
	}
	d.container = inject.Container{Name: "main", Namespace: "ns", Annotations: map[string]string{}}
	d.allocate(t)
	d.disturb(t)
	return d
}

// allocate gives random cards to the container, to another one of the pod, or to the pod as a whole.
func (d *drawn) allocate(t *rapid.T) {
	a := annotation.DeviceAllocations{}
	for _, c := range d.node.Cards.List {
		entry := annotation.DeviceAllocation{ID: c.ID, Extension: &annotation.DeviceExtension{}}
		if rapid.Bool().Draw(t, "has a minor") {
			minor := rapid.Int32Range(0, 7).Draw(t, "minor")
			entry.Minor = &minor
		}
		switch rapid.IntRange(0, 5).Draw(t, "to") {
		case 0:
			d.own = append(d.own, c)
		case 1:
			entry.Extension.Containers = map[string]annotation.DeviceAmounts{"main": {}, "other": {}}
			d.own = append(d.own, c)
		case 2:
			entry.Extension.Containers = map[string]annotation.DeviceAmounts{"other": {}}
		default:
			continue
		}
		a[c.Kind.Type()] = append(a[c.Kind.Type()], entry)
		if rapid.Bool().Draw(t, "asks") {
			d.container.Asks = append(d.container.Asks, c.Kind.Type())
		}
	}
	if len(a) > 0 {
		d.container.Annotations[annotation.DeviceAllocatedKey] = a.String()
	}
}

// disturb lets image, pod and other writers give the container something.
func (d *drawn) disturb(t *rapid.T) {
	has := &d.container.Has
	has.Env = []string{"PATH=/bin"}
	has.Files = []inject.File{{DeviceFile: file("/dev/fuse", 10, 229)}}
	for _, name := range []string{"NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES"} {
		if rapid.Bool().Draw(t, name) {
			has.Env = append(has.Env, name+"=all")
		}
	}
	if rapid.Bool().Draw(t, "undisturbed") {
		return
	}
	d.clean = false
	for _, c := range d.node.Cards.List {
		if rapid.IntRange(0, 4).Draw(t, "given by another") == 0 {
			f := inject.File{DeviceFile: c.Files[0]}
			if rapid.Bool().Draw(t, "renamed") {
				f.Path = "/dev/renamed"
			}
			has.Files = append(has.Files, f)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "twice") == 0 {
		has.Env = append(has.Env, "NVIDIA_VISIBLE_DEVICES=all")
	}
	if rapid.IntRange(0, 4).Draw(t, "foreign CDI") == 0 {
		has.CDI = append(has.CDI, "nvidia.com/gpu=all")
	}
	has.Privileged = rapid.IntRange(0, 4).Draw(t, "privileged") == 0
}

// owned reports, from the words of the guide, whether the container may have no device of a type but its own.
func (d *drawn) owned(kind string) bool {
	return d.node.Mode == "Own" && slices.Contains(d.node.Types, kind) ||
		strings.Contains(d.container.Annotations[annotation.DeviceAllocatedKey], `"`+kind+`":[`)
}

// created is the container as a runtime creates it: of a variable that is set twice it replaces the first.
func (d *drawn) created(a inject.Answer) inject.Container {
	c := d.container
	c.Has.Env, c.Has.Files = slices.Clone(c.Has.Env), slices.Clone(c.Has.Files)
	c.Has.CDI = slices.Concat(c.Has.CDI, a.CDI)
	for name, value := range a.Env {
		at := slices.IndexFunc(c.Has.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		if at < 0 {
			c.Has.Env = append(c.Has.Env, "")
			at = len(c.Has.Env) - 1
		}
		c.Has.Env[at] = name + "=" + value
	}
	for _, f := range a.Files {
		c.Has.Files = slices.DeleteFunc(c.Has.Files, func(g inject.File) bool { return g.Path == f.Path })
		c.Has.Files = append(c.Has.Files, inject.File{DeviceFile: f})
	}
	return c
}

// The visible set equals the allocation: never more, never less, and void where there is none.
func TestAContainerSeesItsAllocationAndNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		answer, err := inject.Decide(d.node, &d.container)
		if err != nil {
			if d.clean {
				t.Fatalf("refused without a cause: %v", err)
			}
			return
		}
		c := d.created(answer)
		if err := inject.Check(d.node, &c); err != nil {
			t.Fatalf("what Decide wants does not pass Check: %v", err)
		}
		visible := map[string][]string{}
		for _, card := range d.node.Cards.List {
			if slices.ContainsFunc(c.Has.Files, func(f inject.File) bool {
				return f.Major == card.Files[0].Major && f.Minor == card.Files[0].Minor
			}) {
				visible[card.Kind.Type()] = append(visible[card.Kind.Type()], card.ID)
			}
		}
		want := map[string][]string{}
		vendors := map[host.CardKind][]string{}
		for _, card := range d.own {
			want[card.Kind.Type()] = append(want[card.Kind.Type()], card.ID)
			vendors[card.Kind] = append(vendors[card.Kind], card.ID)
		}
		for _, kind := range []string{"gpu", "rdma", "fpga"} {
			if d.owned(kind) && !c.Has.Privileged && !slices.Equal(visible[kind], want[kind]) {
				t.Fatalf("sees the %s %v, want %v", kind, visible[kind], want[kind])
			}
		}
		if d.owned("gpu") {
			checkVariables(t, d, c, vendors)
		} else if diff := cmp.Diff(d.container.Has.Env, c.Has.Env); diff != "" {
			t.Fatalf("variables (-want +got):\n%s", diff)
		}
		if c.Has.Privileged && len(d.own) > 0 {
			t.Fatal("a privileged container with devices of its own sees the others too")
		}
	})
}

func checkVariables(t *rapid.T, d drawn, c inject.Container, own map[host.CardKind][]string) {
	for kind, name := range map[host.CardKind]string{
		host.NVIDIA: "NVIDIA_VISIBLE_DEVICES", host.AMD: "AMD_VISIBLE_DEVICES",
	} {
		var values []string
		for _, e := range c.Has.Env {
			if value, ok := strings.CutPrefix(e, name+"="); ok {
				values = append(values, value)
			}
		}
		want := "void"
		if len(own[kind]) > 0 {
			want = strings.Join(own[kind], ",")
		}
		there := kind == host.NVIDIA || slices.ContainsFunc(d.node.Cards.List,
			func(c host.Card) bool { return c.Kind == kind })
		if there && !slices.Equal(values, []string{want}) {
			t.Fatalf("%s is %q, want %q once", name, values, want)
		}
	}
}

// Check finds each single difference between a container that is to be created and its answer.
func TestCheckFindsEachDifference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		answer, err := inject.Decide(d.node, &d.container)
		if err != nil || d.container.Has.Privileged {
			return
		}
		c := d.created(answer)
		for name := range answer.Env {
			bad := d.created(answer)
			bad.Has.Env = slices.DeleteFunc(bad.Has.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
			if inject.Check(d.node, &bad) == nil {
				t.Fatalf("%s is missing", name)
			}
			bad.Has.Env = append(bad.Has.Env, name+"=all")
			if inject.Check(d.node, &bad) == nil {
				t.Fatalf("%s is all", name)
			}
		}
		for _, f := range answer.Files {
			bad := d.created(answer)
			bad.Has.Files = slices.DeleteFunc(bad.Has.Files, func(g inject.File) bool { return g.Path == f.Path })
			if inject.Check(d.node, &bad) == nil {
				t.Fatalf("%s is missing", f.Path)
			}
		}
		for _, name := range answer.CDI {
			bad := d.created(answer)
			bad.Has.CDI = slices.DeleteFunc(bad.Has.CDI, func(n string) bool { return n == name })
			if inject.Check(d.node, &bad) == nil {
				t.Fatalf("%s is missing", name)
			}
		}
		for _, card := range d.node.Cards.List {
			sees := slices.ContainsFunc(c.Has.Files, func(f inject.File) bool { return f.DeviceFile == card.Files[0] })
			if sees || !d.owned(card.Kind.Type()) {
				continue
			}
			bad := d.created(answer)
			bad.Has.Files = append(bad.Has.Files, inject.File{DeviceFile: card.Files[0]})
			if inject.Check(d.node, &bad) == nil {
				t.Fatalf("%s of another card is there", card.Files[0].Path)
			}
		}
	})
}

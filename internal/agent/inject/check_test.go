package inject_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// access is what a runtime lets a container use that is created with device files.
func access(c *inject.Container) host.Access {
	var rules strings.Builder
	rules.WriteString("c *:* m\nb *:* m\nc 1:3 rwm\nc 136:* rwm\n")
	if c.Has.Privileged {
		rules.Reset()
		rules.WriteString("a *:* rwm\n")
	}
	for _, f := range c.Has.Files {
		fmt.Fprintf(&rules, "c %d:%d rw\n", f.Major, f.Minor)
	}
	return host.ParseAccess(rules.String())
}

// A running container differs from its allocation when, and only when, it can use a card that is not its own or cannot
// use its own: the oracle goes by the cards, and knows neither Decide nor Check.
func TestCompareFindsWhatRunningContainersCanUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := draw(t)
		answer, err := inject.Decide(d.node, &d.container)
		if err != nil {
			return
		}
		c := d.created(answer)
		can := access(&c)
		if err := inject.Compare(d.node, &c, &can); err != nil {
			t.Fatalf("as created: %v", err)
		}
		if c.Has.Privileged || d.node.Mode == "" {
			return
		}
		for _, card := range d.node.Cards.List {
			own := slices.ContainsFunc(d.own, func(x host.Card) bool { return x.BusID == card.BusID })
			if !own && !d.owned(card.Kind.Type()) {
				continue
			}
			other := c
			other.Has.Files = slices.DeleteFunc(slices.Clone(c.Has.Files),
				func(f inject.File) bool { return f.Major == card.Files[0].Major && f.Minor == card.Files[0].Minor })
			if !own {
				other.Has.Files = append(other.Has.Files, inject.File{DeviceFile: card.Files[0]})
			}
			can := access(&other)
			if inject.Compare(d.node, &other, &can) == nil {
				t.Fatalf("card %s is its own: %t; the opposite is not found", card.ID, own)
			}
			if can.Whole = false; own && inject.Compare(d.node, &other, &can) != nil {
				t.Fatalf("card %s is missed in what is known in part", card.ID)
			}
			var nothing host.Access
			if err := inject.Compare(d.node, &other, &nothing); (err == nil) != own {
				t.Fatalf("card %s is its own: %t; by what the runtime reports: %v", card.ID, own, err)
			}
		}
	})
}

func TestCompareNamesTheFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		container inject.Container
		rules     string
		want      string
	}{
		"a plain container without devices": {plain(), "c 1:3 rwm", ""},
		"a GPU that was not allocated":      {plain(), "c 195:1 rw", "gives it /dev/nvidia1"},
		"all GPUs":                          {plain(), "c 195:* rw", "gives it /dev/nvidia1"},
		"a privileged plain container":      {plain(), "a *:* rwm", ""},
		"a privileged container with a GPU": {allocated(gpuA), "a *:* rwm", "it is privileged"},
		"its own":                           {allocated(gpuA), "c 195:0 rw\nc 195:255 rw\nc 510:0 rw", ""},
		"not its own":                       {allocated(gpuA), "c 1:3 rwm", "it cannot use /dev/nvidia-uvm"},
		"a card that is gone": {
			allocated(`{"gpu":[{"id":"GPU-z","resources":{}}]}`), "c 195:0 rw",
			`no driver of this machine has the gpu "GPU-z"`,
		},
	} {
		can := host.ParseAccess(test.rules)
		err := inject.Compare(machine(), &test.container, &can)
		switch {
		case test.want == "" && err == nil:
		case !errors.Is(err, inject.ErrMismatch) || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

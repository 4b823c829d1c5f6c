//go:build hw

package inject_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
)

// Each GPU of this machine is in the specification, with device files that exist. Nothing is written.
func TestCDIOnThisMachine(t *testing.T) {
	root := host.Root{Dir: "/"}
	cards, err := host.ReadCards(root)
	if err != nil {
		t.Error(err)
	}
	cards.List = slices.DeleteFunc(cards.List, func(c host.Card) bool { return c.Kind != host.NVIDIA })
	if len(cards.List) == 0 {
		text := "NOT RUN: " + t.Name() + ": no GPU of NVIDIA here"
		fmt.Println(text) //nolint:forbidigo // seen without -v
		t.Skip(text)
	}
	text, err := inject.CDISpec(inject.CDIGPU, &cards)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(text)
	for _, c := range cards.List {
		if c.ID == "" || !strings.Contains(text, `"name": "`+c.ID+`"`) {
			t.Errorf("GPU %q at %s is not in the specification", c.ID, c.BusID)
		}
		for _, f := range slices.Concat(c.Files, cards.Common[host.NVIDIA]) {
			if _, err := os.Stat(f.Path); err != nil {
				t.Errorf("GPU %s: %v", c.ID, err)
			}
		}
	}
	described, err := host.ReadToolkitCDI(root)
	t.Logf("devices of the toolkit: %q (%v)", inject.ToolkitNames(&cards, described), err)
}

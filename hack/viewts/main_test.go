package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/view"
)

// Inner is a part of outer.
type Inner struct {
	Text string `json:"text"`
}

type outer struct {
	Inner
	*view.LimitUse

	Name     string              `json:"name"`
	Absent   *Inner              `json:"absent,omitempty"`
	Null     *Inner              `json:"null"`
	At       time.Time           `json:"at"`
	Strength device.Strength     `json:"strength"`
	Lists    map[string][][2]int `json:"lists,omitzero"`
	Any      any                 `json:"any"`
	Whole    bool                `json:"whole"`
	Part     float64             `json:"part"`
	Hidden   string              `json:"-"`
	Plain    uint8
}

func TestTypes(t *testing.T) {
	t.Parallel()
	const want = `
export interface Viewtsouter {
  text: string;
  code: string;
  subject: string;
  have: number;
  limit: number;
  window?: string;
  name: string;
  absent?: ViewtsInner;
  null: ViewtsInner | null;
  at: string;
  strength: string;
  lists?: Record<string, number[][]>;
  any: unknown;
  whole: boolean;
  part: number;
  Plain: number;
}

export interface ViewtsInner {
  text: string;
}
`
	_, got, _ := strings.Cut(string(types([]any{outer{}})), "  items: T[];\n}\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

// TestEachExceptionIsOfAField: without it a field that was renamed would lose its type.
func TestEachExceptionIsOfAField(t *testing.T) {
	t.Parallel()
	text := string(types(drawn))
	for _, field := range slices.Concat(null, slices.Collect(maps.Keys(raw))) {
		name, in, _ := strings.Cut(field, ".")
		_, body, _ := strings.Cut(text, "interface "+name+" {")
		body, _, _ = strings.Cut(body, "}\n\n")
		if !strings.Contains(body, "  "+in+"?: ") && !strings.Contains(body, "  "+in+": ") {
			t.Errorf("%s is not a field of the pages", field)
		}
	}
}

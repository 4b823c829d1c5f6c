package core

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/sched/diag"
	"github.com/tenon-project/tenon/internal/testkit"
)

// source and record are those of a journal or a replay.
type source struct{}

func (source) Pop(inner NextPod) NextPod { return inner }

// variants are the options by which lists of layers differ.
func variants() map[string]Options {
	return map[string]Options{
		"scheduler": {Serving: &Serving{}, Decisions: &diag.Ring{}},
		"scheduler with journal": {
			Serving: &Serving{}, Decisions: &diag.Ring{}, Source: source{}, Record: Unrecorded{},
		},
		"simulation": {Source: source{}, Record: Unrecorded{}},
		"replay":     {Remember: true, Decisions: &diag.Ring{}, Source: source{}, Record: Unrecorded{}},
	}
}

func namesOf(layers []layer) (names []string) {
	for _, l := range layers {
		names = append(names, nameOf(l))
	}
	return names
}

func TestLayersAreInTheOrderThatTheyName(t *testing.T) {
	t.Parallel()
	for name, o := range variants() {
		if err := checkOrder((&Core{options: o}).layers(t.Context())); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// seamsOf returns the seams that a layer wraps. Preparation of a layer changes the plugins of profiles.
func seamsOf(l layer) (seams []string) {
	_, cache := l.(cacheSeam)
	_, queue := l.(queueSeam)
	_, next := l.(nextSeam)
	_, schedule := l.(scheduleSeam)
	_, fail := l.(failSeam)
	_, profile := l.(profileSeam)
	_, prepares := l.(preparation)
	for i, wraps := range []bool{cache, queue, next, schedule, fail, profile || prepares} {
		if wraps {
			seams = append(seams, []string{"Cache", "Queue", "Next", "Schedule", "Fail", "Profile"}[i])
		}
	}
	return seams
}

// TestLayersOfOneSeamHaveOneOrder: of two layers that follow each other at a seam, the outer one names the inner one,
// and they are refused in the other order.
func TestLayersOfOneSeamHaveOneOrder(t *testing.T) {
	t.Parallel()
	for name, o := range variants() {
		last, layers := map[string]int{}, (&Core{options: o}).layers(t.Context())
		for i, l := range layers {
			for _, seam := range seamsOf(l) {
				if inner, wrapped := last[seam]; wrapped {
					swapped := slices.Clone(layers)
					swapped[inner], swapped[i] = swapped[i], swapped[inner]
					if !slices.Contains(namesOf(l.inside()), nameOf(layers[inner])) || checkOrder(swapped) == nil {
						t.Errorf("%s: %s: %s does not say that it surrounds %s", name, seam, nameOf(l),
							nameOf(layers[inner]))
					}
				}
				last[seam] = i
			}
		}
		if len(last) != 6 {
			t.Errorf("%s: layers wrap %v, want six seams", name, last)
		}
	}
}

func TestAMisplacedLayerIsNamed(t *testing.T) {
	t.Parallel()
	all := base{&Core{}}
	const want = "layer retried must surround layer remembered"
	if err := checkOrder([]layer{retried{all}, remembered{all}}); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestThePictureShowsAllLayers: ARCHITECTURE.md has the list, and the seams that each layer wraps.
func TestThePictureShowsAllLayers(t *testing.T) {
	t.Parallel()
	var want []string
	for _, l := range (&Core{options: variants()["scheduler with journal"]}).layers(t.Context()) {
		want = append(want, strings.Join(append([]string{nameOf(l)}, seamsOf(l)...), " "))
	}
	text, err := os.ReadFile("../../../ARCHITECTURE.md")
	testkit.Check(t, err)
	_, picture, found := strings.Cut(string(text), "## The scheduling core\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section on the scheduling core")
	}
	var got []string
	for line := range strings.Lines(strings.Split(picture, "```")[1]) {
		if layer, _, ok := strings.Cut(line, "│"); ok {
			got = append(got, strings.Join(strings.Fields(layer), " "))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("ARCHITECTURE.md draws\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

package view_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/quiet"
	"github.com/tenon-project/tenon/internal/view"
)

func TestHowOftenInterruptsFireInWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate       *quiet.Rate
		text, note string
	}{
		"devices": {
			&quiet.Rate{Devices: 12, Kernel: 250, Busiest: "24 (eth0)"}, "12 interrupts/s (kernel 250)",
			"CPUs 2-3 are interrupted 12 times a second by devices, most by interrupt 24 (eth0), and 250 times a " +
				"second by the kernel, such as by timers",
		},
		"the kernel alone": {
			&quiet.Rate{Kernel: 250}, "0 interrupts/s (kernel 250)",
			"CPUs 2-3 are interrupted by no device, and 250 times a second by the kernel, such as by timers",
		},
		"not known": {},
	} {
		if got := view.InterruptsText(c.rate); got != c.text {
			t.Errorf("%s: %q, want %q", name, got, c.text)
		}
		if c.rate == nil {
			continue
		}
		if got := view.InterruptsNote("2-3", c.rate); got != c.note {
			t.Errorf("%s: %q, want %q", name, got, c.note)
		}
	}
}

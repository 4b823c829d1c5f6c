package colocation_test

import (
	"testing"

	"github.com/tenon-project/tenon/internal/core/amount"
	"github.com/tenon-project/tenon/internal/core/colocation"
)

func TestPredict(t *testing.T) {
	t.Parallel()
	type amounts = amount.Pair
	for name, test := range map[string]struct{ requests, peak, want amounts }{
		"pods use half of what they request": {amounts{1000, 2000}, amounts{500, 1000}, amounts{450, 900}},
		"pods use nothing":                   {amounts{1000, 2000}, amounts{}, amounts{1000, 2000}},
		"the margin takes the rest":          {amounts{1000, 2000}, amounts{910, 1819}, amounts{0, 0}},
		"pods use more than they request":    {amounts{1000, 2000}, amounts{4000, 1}, amounts{0, 1999}},
		"pods request nothing":               {amounts{}, amounts{500, 500}, amounts{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := colocation.Predict(test.requests, test.peak); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

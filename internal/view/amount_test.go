package view_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	_ "github.com/tenon-project/tenon/internal/testkit/seed"
	"github.com/tenon-project/tenon/internal/view"
)

func TestAmountsReadAsQuantities(t *testing.T) {
	t.Parallel()
	check := func(n int64) (got, want string) {
		got = view.CPUText(n) + " " + view.BytesText(n)
		want = resource.NewMilliQuantity(n, resource.DecimalSI).String() + " " +
			resource.NewQuantity(n, resource.BinarySI).String()
		return got, want
	}
	for _, n := range []int64{0, 1, 999, 1000, 1023, 1024, 1000000, 1 << 40, 3 << 60, -1, -1000, -1023, -1024, -1500} {
		if got, want := check(n); got != want {
			t.Errorf("%d: got %s, want %s", n, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(-1<<20, 1<<20).Draw(t, "n")
		for range rapid.IntRange(0, 4).Draw(t, "factors") {
			n *= rapid.SampledFrom([]int64{1000, 1024}).Draw(t, "factor")
		}
		if got, want := check(n); got != want {
			t.Fatalf("%d: got %s, want %s", n, got, want)
		}
	})
}

package testkit_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
)

type (
	inner interface {
		A()
		B()
	}
	wrapper struct{ inner }
)

func (*wrapper) B() {}

func TestWhatIsWrappedIsNotPromoted(t *testing.T) {
	t.Parallel()
	if got := testkit.Promoted(reflect.TypeFor[*wrapper]()); !slices.Equal(got, []string{"A"}) {
		t.Errorf("got %v, want A", got)
	}
}

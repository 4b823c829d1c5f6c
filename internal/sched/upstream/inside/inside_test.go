package inside

import "testing"

type (
	owns   struct{ list []int }
	embeds struct{ *owns } // as a plugin of ours embeds one of upstream's
	hides  struct{ any }   // as a queue hides its parts behind interfaces
	holds  struct{ part hides }
)

// Upstream may rename what is replaced: the scheduler must not start then, with a part that is as it was.
func TestAFieldThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	owner := &owns{}
	for name, err := range map[string]error{
		"another name":      second(Field[[]int](owner, "other")),
		"another type":      second(Field[[]string](owner, "list")),
		"no pointer":        second(Field[[]int](*owner, "list")),
		"nothing":           second(Field[[]int](nil, "list")),
		"no path":           second(Field[*owns](owner)),
		"part without name": second(Field[[]int](&holds{hides{owner}}, "part", "other", "list")),
		"part of a list":    second(Field[[]int](owner, "list", "list")),
		"nil part":          second(Field[[]int](&holds{}, "part", "any", "list")),
		"part that is nil":  second(Field[[]int](&holds{hides{(*owns)(nil)}}, "part", "any", "list")),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, p := range []any{owner, &embeds{owner}} {
		if list, err := Field[[]int](p, "list"); err != nil || list != &owner.list {
			t.Errorf("%T: got %v, %v", p, list, err)
		}
	}
	if list, err := Field[[]int](&holds{hides{owner}}, "part", "any", "list"); err != nil || list != &owner.list {
		t.Errorf("a path through an interface: got %v, %v", list, err)
	}
}

func second[T any](_ T, err error) error { return err }

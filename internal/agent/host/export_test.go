package host

import "github.com/tenon-project/tenon/internal/core/topo"

// Spec is Read without the validation of topo.New.
func Spec(root Root, arch string) (topo.Spec, []string, error) {
	var s survey
	err := within(root, func(t *tree) {
		s.tree = t
		s.run(arch)
	})
	return s.spec, s.notes, err
}

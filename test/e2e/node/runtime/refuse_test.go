//go:build e2e_node

package runtime

import (
	"strings"
	"testing"
)

func TestAPodWithoutItsDecisionDoesNotStart(t *testing.T) {
	for name, test := range map[string]struct {
		options []podOption
		event   string
	}{
		"an LSE pod that has no CPUs":     {[]podOption{withClass("LSE"), guaranteed("1")}, "UnallocatedExclusivePod"},
		"an LSR pod that has no CPUs":     {[]podOption{withClass("LSR"), guaranteed("1")}, "UnallocatedExclusivePod"},
		"an allocation that is malformed": {[]podOption{withClass("LSR"), guaranteed("1"), malformed}, "BadAnnotation"},
	} {
		for _, route := range closed {
			t.Run(name+"/"+string(route), func(t *testing.T) {
				w := newWorld(t, route, options{})
				b, err := w.runtime.RunPod(t.Context(), w.bind(pod("exclusive", test.options...)))
				if err == nil {
					err = w.refused(t.Context(), b, "main")
				}
				if err != nil && !strings.Contains(err.Error(), test.event) {
					t.Errorf("the runtime says %q, want the reason %s in it", err, test.event)
				}
				w.event("exclusive", test.event)
				_, plain := w.run(pod("plain"))
				w.wants(plain, allCPUs)
			})
		}
	}
}

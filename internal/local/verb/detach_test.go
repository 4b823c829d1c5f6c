package verb

import (
	"slices"
	"testing"
)

func TestTheFolderOfAProgramStartedByItsPathIsPrinted(t *testing.T) {
	t.Parallel()
	for program, want := range map[string]string{"tenon": "", "/usr/bin/tenon": "PATH=/usr/bin:$PATH "} {
		if got := pathOf(program); got != want {
			t.Errorf("%s: %q, want %q", program, got, want)
		}
	}
}

func TestADetachedStartIsTheSameStart(t *testing.T) {
	t.Parallel()
	own := []string{"--detach=false", "--demo=false", "--report-fd", "3"}
	for name, c := range map[string]struct{ user, want []string }{
		"flags":                    {[]string{"up", "-n", "3", "--detach"}, []string{"up", "-n", "3", "--detach"}},
		"an end of flags":          {[]string{"up", "--detach", "--"}, []string{"up", "--detach"}},
		"an end of flags, between": {[]string{"up", "--detach", "--", "x"}, []string{"up", "--detach"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, want := attached(c.user, "--report-fd", "3"), slices.Concat(c.want, own); !slices.Equal(got, want) {
				t.Errorf("the detached process gets %q, want %q", got, want)
			}
		})
	}
}

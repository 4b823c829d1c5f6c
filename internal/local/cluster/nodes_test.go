package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestExpand(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		specs []string
		count int
		want  []datadir.Node
	}{
		"the default is five machines": {
			specs: DefaultMachines(),
			want: []datadir.Node{
				{Name: "epyc-2s-0", Machine: "epyc-2s"},
				{Name: "epyc-2s-1", Machine: "epyc-2s"},
				{Name: "epyc-256-0", Machine: "epyc-256"},
				{Name: "arm64-1s-0", Machine: "arm64-1s"},
				{Name: "hgx-h100-0", Machine: "hgx-h100"},
			},
		},
		"the list is repeated until there are enough nodes": {
			specs: []string{"snc2", "hybrid"}, count: 3,
			want: []datadir.Node{
				{Name: "snc2-0", Machine: "snc2"},
				{Name: "hybrid-0", Machine: "hybrid"},
				{Name: "snc2-1", Machine: "snc2"},
			},
		},
		"a smaller number cuts the list": {
			specs: []string{"snc2=4"}, count: 1,
			want: []datadir.Node{{Name: "snc2-0", Machine: "snc2"}},
		},
		"kubelet settings are part of the machine": {
			specs: []string{"epyc-2s@static,full-pcpus-only=2", "epyc-2s"},
			want: []datadir.Node{
				{Name: "epyc-2s-0", Machine: "epyc-2s@static,full-pcpus-only"},
				{Name: "epyc-2s-1", Machine: "epyc-2s@static,full-pcpus-only"},
				{Name: "epyc-2s-2", Machine: "epyc-2s"},
			},
		},
		"the other spelling of kubelet settings means the same": {
			specs: []string{"epyc-2s,kubelet=restricted+follow=2"},
			want: []datadir.Node{
				{Name: "epyc-2s-0", Machine: "epyc-2s@restricted,follow"},
				{Name: "epyc-2s-1", Machine: "epyc-2s@restricted,follow"},
			},
		},
		"a setting that looks like a count is none": {
			specs: []string{"epyc-2s@static,reserved=3"},
			want:  []datadir.Node{{Name: "epyc-2s-0", Machine: "epyc-2s@static,reserved=3"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Expand(test.specs, test.count)
			testkit.Check(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Expand(%v, %d) (-want +got):\n%s", test.specs, test.count, diff)
			}
		})
	}
}

func TestUnknownMachinesAreNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		specs []string
		count int
		want  []string
	}{
		"a misspelt preset":   {[]string{"epic-2s"}, 0, []string{"epic-2s", "Did you mean epyc-2s?", "arm64-1s"}},
		"a misspelt setting":  {[]string{"epyc-2s@statik"}, 0, []string{"statik", "Did you mean static?"}},
		"a count of nothing":  {[]string{"epyc-2s=0"}, 0, []string{"count"}},
		"too few nodes":       {[]string{"epyc-2s"}, -1, []string{"-1", "want 1 to"}},
		"a folder not there":  {[]string{"./no/such/capture"}, 0, []string{"an archive or a folder"}},
		"far too many of one": {[]string{"epyc-2s=100000"}, 0, []string{"100000"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Expand(test.specs, test.count)
			var bad *ExitError
			if !errors.As(err, &bad) || bad.ExitCode() != 2 {
				t.Fatalf("Expand(%v, %d): %v, want a *ExitError with exit code 2", test.specs, test.count, err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("text %q does not say %q", err, part)
				}
			}
		})
	}
}

func TestACapturedMachineIsFoundFromAnyFolder(t *testing.T) {
	captured := filepath.Join(t.TempDir(), "box")
	testkit.Check(t, os.Mkdir(captured, 0o700))
	testkit.Check(t, machine.Presets()[0].Write(captured))
	t.Chdir(filepath.Dir(captured))
	got, err := Expand([]string{"./box@static=2"}, 0)
	testkit.Check(t, err)
	want := []datadir.Node{
		{Name: "box-0", Machine: captured + "@static"},
		{Name: "box-1", Machine: captured + "@static"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

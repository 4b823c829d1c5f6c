package inject_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inject"
	"github.com/tenon-project/tenon/internal/testkit"
)

// A file of a daemon that has ended is none, and neither is a daemon with its pipes elsewhere.
func TestMPSNeedsADaemonAndItsPipes(t *testing.T) {
	t.Parallel()
	const (
		pipes   = "var/run/tenon/mps/pipe/nvidia-cuda-mps-control.pid"
		process = "proc/99/cmdline"
	)
	for name, test := range map[string]struct {
		files []string
		want  bool
	}{
		"nothing": {}, "a daemon with its pipes elsewhere": {files: []string{process}},
		"a daemon that has ended": {files: []string{pipes}}, "a daemon": {[]string{pipes, process}, true},
	} {
		root := host.Root{Dir: t.TempDir()}
		for _, file := range test.files {
			testkit.Check(t, os.MkdirAll(filepath.Dir(root.Path(file)), 0o755))
			testkit.Check(t, os.WriteFile(root.Path(file), []byte("/usr/bin/nvidia-cuda-mps-control\x00-d\x00"), 0o600))
		}
		if got := inject.HasMPS(root); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
	gpus := []host.Dropped{
		{UUID: "GPU-a", ComputeMode: "Exclusive_Process"},
		{UUID: "GPU-b", ComputeMode: "Default"},
		{UUID: "GPU-c"},
		{UUID: "GPU-d", ComputeMode: "Exclusive_Process", IsLost: true},
	}
	if got := inject.Exclusive(gpus); !slices.Equal(got, []string{"GPU-a"}) {
		t.Errorf("GPUs in mode Exclusive_Process: got %q, want GPU-a", got)
	}
}

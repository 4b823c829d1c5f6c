package host_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTheKubeletsFilesAreWatched: what it replaces is told, a socket that is made anew as a restart.
func TestTheKubeletsFilesAreWatched(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: testkit.Dir(t)}
	dir := root.Path("var/lib/kubelet")
	for _, sub := range []string{"device-plugins", "pod-resources"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan bool, 100), make(chan error, 1)
	go func() { ended <- host.WatchKubelet(ctx, root, func(restarted bool) { told <- restarted }) }()
	replace := func(name string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	// Nobody tells when the watch has begun: the first file is replaced until it is seen.
	for begun := false; !begun; {
		replace("cpu_manager_state")
		select {
		case <-told:
			begun = true
		default:
		}
	}
	for _, step := range []struct {
		name      string
		restarted bool
	}{{"device-plugins/kubelet_internal_checkpoint", false}, {"memory_manager_state", false}, {"pod-resources/kubelet.sock", true}} {
		for len(told) > 0 {
			<-told
		}
		replace(step.name)
		for restarted := range told {
			if restarted == step.restarted {
				break // else one of the first file's replacements was still on its way
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("WatchKubelet = %v at the end of its context", err)
	}
}

func TestAWatchEndsWhereThereIsNoKubelet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.WatchKubelet(ctx, host.Root{Dir: testkit.Dir(t)}, func(bool) {}) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("WatchKubelet = %v", err)
	}
}

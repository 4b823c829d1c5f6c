package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// TestTheKubeletsFilesAreWatched: each replaced file is reported, a new socket as a restart.
func TestTheKubeletsFilesAreWatched(t *testing.T) {
	t.Parallel()
	root := host.Root{Dir: testkit.Dir(t)}
	dir := root.Path("var/lib/kubelet")
	for _, sub := range []string{"device-plugins", "pod-resources"} {
		testkit.Check(t, os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan bool, 100), make(chan error, 1)
	go func() { ended <- host.WatchKubelet(ctx, root, func(restarted bool) { events <- restarted }) }()
	replace := func(name string) {
		t.Helper()
		file := filepath.Join(dir, name)
		testkit.Check(t, os.WriteFile(file+".new", nil, 0o600))
		testkit.Check(t, os.Rename(file+".new", file))
	}
	// The start of the watch is not observable: the test replaces the first file until the watch reports it.
	for begun := false; !begun; {
		replace("cpu_manager_state")
		select {
		case <-events:
			begun = true
		default:
		}
	}
	for _, step := range []struct {
		name      string
		restarted bool
	}{
		{"device-plugins/kubelet_internal_checkpoint", false},
		{"memory_manager_state", false},
		{"pod-resources/kubelet.sock", true},
		{"device-plugins/gone.sock", false},
	} {
		for len(events) > 0 {
			<-events
		}
		replace(step.name)
		if strings.HasSuffix(step.name, "gone.sock") { // only its removal is reported
			testkit.Check(t, os.Remove(filepath.Join(dir, step.name)))
		}
		for restarted := range events {
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

func TestAWatchEndsWithoutAKubelet(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.WatchKubelet(ctx, host.Root{Dir: testkit.Dir(t)}, func(bool) {}) }()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("WatchKubelet = %v", err)
	}
}

// Without a runtime that reports containers, this detects a new one.
func TestNewGroupsAreNoticedAtEachLevel(t *testing.T) {
	t.Parallel()
	dir := testkit.Dir(t)
	roots := []string{filepath.Join(dir, "kubepods"), filepath.Join(dir, "kubepods.slice")} // the second is missing
	testkit.Check(t, os.MkdirAll(filepath.Join(roots[0], "burstable", "pod-old"), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	made, ended := make(chan string, 1<<16), make(chan error, 1)
	go func() { ended <- host.WatchGroups(ctx, roots, func(group string) { made <- group }) }()
	for i := 0; len(made) == 0; i++ { // until the watch has begun
		testkit.Check(t, os.Mkdir(filepath.Join(roots[0], fmt.Sprint("first-", i)), 0o755))
		<-time.After(time.Millisecond) // the kernel keeps a limited number of events
	}
	for _, group := range []string{
		"pod1", "pod1/c1", "burstable/pod-old/c1", "burstable/pod2", "burstable/pod2/c1", "besteffort",
		"besteffort/pod3", "besteffort/pod3/c1",
	} {
		at := filepath.Join(roots[0], group)
		testkit.Check(t, os.Mkdir(at, 0o755))
		for noticed := range made {
			if noticed == at {
				break // else it was one of the first
			}
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("WatchGroups = %v at the end of its context", err)
	}
}

// A group of which the kernel lost the event is watched all the same.
func TestGroupsBelowALostOneAreNoticed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	testkit.Check(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	testkit.Check(t, err)
	dir := testkit.Dir(t)
	ctx, cancel := context.WithCancel(t.Context())
	began, released := make(chan struct{}), make(chan struct{})
	made, ended := make(chan string, 4*most), make(chan error, 1)
	go func() {
		ended <- host.WatchGroups(ctx, []string{dir}, func(group string) {
			select {
			case <-began:
			default:
				close(began)
			}
			<-released
			made <- group
		})
	}()
	at := filepath.Join(dir, "file")
	touch := func() {
		testkit.Check(t, os.WriteFile(at, nil, 0o600))
		testkit.Check(t, os.Remove(at))
	}
	for waits := true; waits; {
		touch()
		select {
		case <-began:
			waits = false
		case <-time.After(time.Millisecond):
		}
	}
	for range most { // each is two events, and few of them are read
		touch()
	}
	lost := filepath.Join(dir, "lost")
	testkit.Check(t, os.Mkdir(lost, 0o755))
	close(released)
	for group := range made {
		if group == lost {
			t.Fatal("the kernel kept the event")
		} else if group == "" {
			break
		}
	}
	below := filepath.Join(lost, "below")
	testkit.Check(t, os.Mkdir(below, 0o755))
	for group := range made {
		if group == below {
			break
		}
	}
	cancel()
	testkit.Check(t, <-ended)
}

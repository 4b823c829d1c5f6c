package apply_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenon-project/tenon/internal/agent/apply"
	"github.com/tenon-project/tenon/internal/agent/desired"
	"github.com/tenon-project/tenon/internal/core/ledger"
	"github.com/tenon-project/tenon/internal/core/qos"
	"github.com/tenon-project/tenon/internal/local/kernel"
)

// TestHooksAndPassesSideBySide lets several runtimes start and stop containers while the engine runs. Three of them take
// turns on the same exclusive CPUs; the kernel is watched at every change.
func TestHooksAndPassesSideBySide(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var overlap atomic.Pointer[string]
		m := smallMachine(t)
		tree, err := kernel.Open(kernel.Options{Machine: m, Observe: func(s kernel.State) {
			owner := map[int]string{}
			for g := range s.Groups() {
				if g.Tasks == 0 || !strings.Contains(g.Path, "podx") {
					continue
				}
				for c := range g.Effective.All() {
					owner[c] = g.Path
				}
			}
			for g := range s.Groups() {
				for c := range g.Effective.All() {
					if other := owner[c]; g.Tasks > 0 && other != "" && other != g.Path {
						text := fmt.Sprintf("CPU %d is in %s and in %s", c, g.Path, other)
						overlap.Store(&text)
					}
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		e := apply.New(apply.Options{Cgroup: tree})
		e.SetFacts(ledger.Facts{Machine: m, MinSharedCPUs: -1})
		e.Prune(func(func(string) bool) {})
		ctx, cancel := context.WithCancel(t.Context())
		var wg, loop sync.WaitGroup
		loop.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var ran atomic.Int32
		for worker := range 6 {
			wg.Go(func() {
				for turn := range 20 {
					uid, entry := "s"+strconv.Itoa(worker)+"-"+strconv.Itoa(turn), ledger.Entry{Role: qos.SharedPool}
					if worker < 3 {
						uid = "x" + uid
						entry = ledger.Entry{Class: qos.LSE, Role: qos.Exclusive, CPUList: "1-3"}
					}
					entry.UID, entry.Name = uid, uid
					e.Update(desired.Pod{Entry: entry})
					if live(ctx, e, tree, uid) {
						ran.Add(1)
					}
					e.Delete(uid)
				}
			})
		}
		wg.Wait()
		cancel()
		loop.Wait()
		if text := overlap.Load(); text != nil {
			t.Error(*text)
		}
		if got := ran.Load(); got != 120 {
			t.Errorf("%d containers ran, want 120", got)
		}
		if got, all := e.View().SharedPool(), m.Online(); got != all {
			t.Errorf("the shared pool is %v in the end, want %v", got, all)
		}
	})
}

// live runs one container through its life, as a kubelet does that tries again while the hand-over is pending.
func live(ctx context.Context, e *apply.Engine, tree *kernel.Tree, uid string) bool {
	c := apply.Container{PodUID: uid, PodGroup: "kubepods/pod" + uid, Group: "kubepods/pod" + uid + "/c"}
	for range 10_000 {
		rows, err := e.Create(c)
		if err != nil || tree.MkdirAll(c.Group) != nil {
			return false
		}
		for _, row := range rows {
			if tree.Write(row.Path, row.File, row.Value) != nil {
				return false
			}
		}
		err = e.Start(ctx, c)
		if err == nil {
			_, err = tree.Spawn(c.Group)
			time.Sleep(time.Millisecond) //nolint:forbidigo // a life of some length, under the race detector
			_ = tree.Kill(c.Group)
		}
		e.Stop(c)
		_ = tree.Rmdir(c.Group)
		e.Remove(c)
		if !errors.Is(err, apply.ErrHandOverPending) {
			return err == nil
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // a life of some length, under the race detector
	}
	return false
}

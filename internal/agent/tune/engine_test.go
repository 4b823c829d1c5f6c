package tune_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/agent/tune"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

const (
	one = "proc/irq/1/smp_affinity_list"
	two = "proc/irq/2/smp_affinity_list"
	all = "proc/irq/default_smp_affinity"
	cpu = "sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us"
)

// killed is the end of an agent.
type killed struct{}

// kernel is the files of a machine.
type kernel struct {
	files    map[string]string
	identity map[string]string
	refuse   map[string]error // of writes
	unread   map[string]error
	ignores  map[string]string // what a file contains after a write, whatever was written
	writes   []string
	left     int // calls until the agent is killed; 0 for never
}

func newKernel(files ...string) *kernel {
	k := &kernel{
		files: map[string]string{}, identity: map[string]string{}, refuse: map[string]error{},
		unread: map[string]error{}, ignores: map[string]string{},
	}
	for i := 0; i < len(files); i += 2 {
		k.files[files[i]] = files[i+1]
	}
	return k
}

// step is one call, before or after which the agent may end.
func (k *kernel) step() {
	if k.left == 0 {
		return
	}
	if k.left--; k.left == 0 {
		panic(killed{})
	}
}

func (k *kernel) Read(file string) (string, error) {
	k.step()
	if err := k.unread[file]; err != nil {
		return "", err
	}
	text, ok := k.files[file]
	if !ok {
		return "", &fs.PathError{Op: "open", Path: file, Err: fs.ErrNotExist}
	}
	return text, nil
}

func (k *kernel) Write(file, value string) error {
	k.step()
	defer k.step()
	k.writes = append(k.writes, file+" "+value)
	if err := k.refuse[file]; err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	k.files[file] = value
	if text, ok := k.ignores[file]; ok {
		k.files[file] = text
	}
	return nil
}

func (k *kernel) Identity(file string) string { return k.identity[file] }

// drain returns the writes since the last call.
func (k *kernel) drain() []string {
	w := k.writes
	k.writes = nil
	return w
}

// to is a Setting with a fixed value.
func to(file, value string) tune.Setting {
	return tune.NewSetting(file, value, func(string) (string, error) { return value, nil })
}

// world is a machine with agents that come and go.
type world struct {
	*kernel
	dir   statedir.Dir
	boot  string
	clock *testingclock.FakePassiveClock
	*tune.Engine
}

func newWorld(t *testing.T, files ...string) *world {
	t.Helper()
	w := &world{
		kernel: newKernel(files...), dir: statedir.Dir(t.TempDir()), boot: "b1",
		clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0)),
	}
	w.restart()
	return w
}

func (w *world) restart() { w.Engine = tune.New(w.kernel, w.dir, w.boot, w.clock) }

// find returns the findings of a look as "Kind file: text".
func (w *world) find(settings ...tune.Setting) []string {
	var out []string
	for _, f := range w.Reconcile(settings) {
		out = append(out, fmt.Sprintf("%s %s: %s", f.Kind, f.File, f.Text))
	}
	return out
}

func TestSettingsAndWhatOthersDo(t *testing.T) {
	t.Parallel()
	const fixed = "Fixed " + one + ": the kernel does not let it change: "
	for name, c := range map[string]struct {
		files []string
		run   func(t *testing.T, w *world) []string // returns the findings of the last look
		want  []string                              // those findings
		ends  map[string]string                     // what differs from files at the end
		last  []string                              // the writes since the last drain
	}{
		"a value is set and restored": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1,4-7"))
				return w.find()
			},
			last: []string{one + " 0-1,4-7", one + " 0-7"},
		},
		"an equal set in other words is not written": {
			files: []string{one, "4-7,0-1", all, "ff"},
			run: func(_ *testing.T, w *world) []string {
				return w.find(to(one, "0-1,4-7"), to(all, "00000000,000000ff"))
			},
		},
		"a value goes from one to another and back, by the original": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.find(to(one, "4-7"))
				return w.find()
			},
			last: []string{one + " 0-1", one + " 4-7", one + " 0-7"},
		},
		"the next agent goes on": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.restart()
				w.find(to(one, "0-1"))
				w.restart()
				return w.find()
			},
			last: []string{one + " 0-1", one + " 0-7"},
		},
		"records of another boot are dropped, nothing is written": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.boot = "b2"
				w.drain()
				w.restart()
				return w.find()
			},
			ends: map[string]string{one: "0-1"}, // a kernel would have reset it
		},
		"another program's value stays and is named": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.files[one] = "2-3"
				w.drain()
				w.find(to(one, "0-1"))
				return w.find(to(one, "0-1"))
			},
			want: []string{"Foreign " + one + ": another program has set it to 2-3"},
			ends: map[string]string{one: "2-3"},
		},
		"another program's value stays when the pod has gone": {
			files: []string{cpu, "0"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(cpu, "10"))
				w.files[cpu] = "50"
				w.drain()
				return w.find()
			},
			ends: map[string]string{cpu: "50"},
		},
		"another program's value is looked at anew for another wish": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.files[one] = "2-3"
				w.find(to(one, "0-1"))
				w.drain()
				return w.find(to(one, "4-5"))
			},
			ends: map[string]string{one: "4-5"}, last: []string{one + " 4-5"},
		},
		"another program that sets what is wanted is not named": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				quiet := tune.NewSetting(one, "", func(o string) (string, error) {
					if o == "0" {
						return o, nil
					}
					return "0-1", nil
				})
				w.find(quiet)
				w.files[one] = "0"
				w.drain()
				return w.find(quiet)
			},
			ends: map[string]string{one: "0"},
		},
		"a driver that sets its interrupt up anew is followed": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(one, "0-1"))
				w.files[one] = "0-7"
				w.drain()
				return w.find(to(one, "0-1"))
			},
			ends: map[string]string{one: "0-1"}, last: []string{one + " 0-1"},
		},
		"a program that fights is left alone": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				for range 9 {
					w.find(to(one, "0-1"))
					w.files[one] = "0-7"
				}
				return w.find(to(one, "0-1"))
			},
			want: []string{"Foreign " + one + ": another program sets it back to 0-7"},
			last: slices.Repeat([]string{one + " 0-1"}, 3),
		},
		"EIO: the interrupt is managed, and not tried again": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.EIO
				w.find(to(one, "0-1"))
				w.drain()
				w.clock.SetTime(w.clock.Now().Add(time.Hour))
				return w.find(to(one, "0-1"))
			},
			want: []string{fixed + "input/output error"},
		},
		"EPERM: the same": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.EPERM
				w.find(to(one, "0-1"))
				w.drain()
				return w.find(to(one, "0-1"))
			},
			want: []string{fixed + "operation not permitted"},
		},
		"a managed interrupt whose number another device gets is tried": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one], w.identity[one] = syscall.EIO, "nvme0q1"
				w.find(to(one, "0-1"))
				w.refuse[one], w.identity[one] = nil, "eth0"
				w.drain()
				return w.find(to(one, "0-1"))
			},
			ends: map[string]string{one: "0-1"}, last: []string{one + " 0-1"},
		},
		"a managed interrupt does not keep others": {
			files: []string{one, "0-7", two, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.EIO
				return w.find(to(one, "0-1"), to(two, "0-1"))
			},
			want: []string{fixed + "input/output error"},
			ends: map[string]string{two: "0-1"}, last: []string{one + " 0-1", two + " 0-1"},
		},
		"ENOSPC: no vector is free, a pause grows": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.ENOSPC
				for range 100 {
					w.find(to(one, "0-1"))
					w.clock.SetTime(w.clock.Now().Add(time.Second))
				}
				return w.find(to(one, "0-1"))
			},
			want: []string{"Failed " + one + `: cannot be set to "0-1": no space left on device`},
			last: slices.Repeat([]string{one + " 0-1"}, 4), // at 0, 10, 30 and 70 seconds
		},
		"EINVAL: no CPU of the list is online; another list is tried at once": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.EINVAL
				w.find(to(one, "8"))
				delete(w.refuse, one)
				w.drain()
				return w.find(to(one, "0-1"))
			},
			ends: map[string]string{one: "0-1"}, last: []string{one + " 0-1"},
		},
		"EROFS: the mount is read-only": {
			files: []string{all, "ff"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[all] = syscall.EROFS
				return w.find(to(all, "f3"))
			},
			want: []string{"Failed " + all + `: cannot be set to "f3": read-only file system`},
			last: []string{all + " f3"},
		},
		"a restore that fails is tried again": {
			files: []string{cpu, "0"},
			run: func(_ *testing.T, w *world) []string {
				w.find(to(cpu, "10"))
				w.refuse[cpu] = syscall.EPERM
				w.find()
				delete(w.refuse, cpu)
				w.drain()
				w.clock.SetTime(w.clock.Now().Add(time.Minute))
				return w.find()
			},
			last: []string{cpu + " 0"},
		},
		"an interrupt vanishes before it is written": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.refuse[one] = syscall.ENOENT
				return w.find(to(one, "0-1"))
			},
			last: []string{one + " 0-1"},
		},
		"an interrupt vanishes and its number is given away": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.identity[one] = "eth0"
				w.find(to(one, "0-1"))
				w.files[one], w.identity[one] = "3", "eth1"
				w.drain()
				return w.find()
			},
			ends: map[string]string{one: "3"},
		},
		"a file that is not there": {run: func(_ *testing.T, w *world) []string { return w.find(to(one, "0-1")) }},
		"a file that cannot be read": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.unread[one] = syscall.EACCES
				return w.find(to(one, "0-1"))
			},
			want: []string{"Failed " + one + ": cannot be read: permission denied"},
		},
		"a value that cannot be used": {
			files: []string{one, "none"},
			run: func(_ *testing.T, w *world) []string {
				bad := func(original string) (string, error) { return "", errors.New("bad " + original) }
				return w.find(tune.NewSetting(one, "", bad))
			},
			want: []string{"Failed " + one + ": has a value that cannot be used: bad none"},
		},
		"a chip that chooses of the CPUs has done enough": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.ignores[one] = "4"
				w.find(to(one, "0-1,4-7"))
				w.restart()
				w.find(to(one, "0-1,4-7"))
				delete(w.ignores, one)
				return w.find()
			},
			last: []string{one + " 0-1,4-7", one + " 0-7"},
		},
		"a chip that ignores the write is tried with pauses": {
			files: []string{one, "0-7"},
			run: func(_ *testing.T, w *world) []string {
				w.ignores[one] = "0-7"
				w.find(to(one, "0-1"))
				return w.find(to(one, "0-1"))
			},
			want: []string{"Failed " + one + `: cannot be set to "0-1": the file keeps its value`},
			last: []string{one + " 0-1"},
		},
		"without a record nothing is set": {
			files: []string{one, "0-7"},
			run: func(t *testing.T, w *world) []string {
				file := t.TempDir() + "/file"
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				w.dir = statedir.Dir(file) // not a folder
				w.restart()
				found := w.find(to(one, "0-1"))
				for i := range found {
					found[i], _, _ = strings.Cut(found[i], ": open")
					found[i], _, _ = strings.Cut(found[i], ": keep")
				}
				return found
			},
			want: []string{"Failed tuning.json: original values are lost", "Failed tuning.json: nothing is set"},
		},
		"a record that cannot be read is named, and settings go on": {
			files: []string{one, "0-7"},
			run: func(t *testing.T, w *world) []string {
				if err := w.dir.Write("tuning.json", "{"); err != nil {
					t.Fatal(err)
				}
				w.restart()
				found := w.find(to(one, "0-1"))
				for i := range found {
					found[i], _, _ = strings.Cut(found[i], ": /")
				}
				return append(found, w.find(to(one, "0-1"))...)
			},
			want: []string{"Failed tuning.json: original values are lost"},
			ends: map[string]string{one: "0-1"}, last: []string{one + " 0-1"},
		},
		"irqbalance gets the bans once, and then those that it had": {
			files: []string{tune.Bans, "7"},
			run: func(_ *testing.T, w *world) []string {
				late := to(tune.Bans, "2-3,7")
				late.IsLate = true
				w.ignores[tune.Bans] = "7" // until its next round
				w.find(late)
				w.find(late)
				w.files[tune.Bans] = "2-3,7"
				w.find(late)
				w.ignores[tune.Bans] = "2-3,7"
				w.find()
				w.find()
				w.files[tune.Bans] = "7"
				return w.find()
			},
			last: []string{tune.Bans + " 2-3,7", tune.Bans + " 7"},
		},
		"irqbalance has not followed yet when the pod goes": {
			files: []string{tune.Bans, ""},
			run: func(_ *testing.T, w *world) []string {
				late := to(tune.Bans, "2-3")
				late.IsLate = true
				w.ignores[tune.Bans] = ""
				w.find(late)
				return w.find()
			},
			last: []string{tune.Bans + " 2-3", tune.Bans + " "},
		},
		"an irqbalance that was restarted gets them again": {
			files: []string{tune.Bans, ""},
			run: func(_ *testing.T, w *world) []string {
				late := to(tune.Bans, "2-3")
				late.IsLate = true
				w.identity[tune.Bans] = "irqbalance1.sock"
				w.find(late)
				w.files[tune.Bans], w.identity[tune.Bans] = "", "irqbalance2.sock"
				w.drain()
				return w.find(late)
			},
			ends: map[string]string{tune.Bans: "2-3"}, last: []string{tune.Bans + " 2-3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.files...)
			want := maps.Clone(w.files)
			maps.Copy(want, c.ends)
			if diff := cmp.Diff(c.want, c.run(t, w)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, w.files); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.last, w.drain()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFilesAreRestoredWhereverAgentsAreKilled lets pods come and go while agents are killed between any two calls. At
// the end, without pods, each file that no other program has set has its original value, and no record is left.
func TestFilesAreRestoredWhereverAgentsAreKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	number := 0
	rapid.Check(t, func(t *rapid.T) {
		number++
		w := &world{
			kernel: newKernel(one, "0-7", two, "2-3", all, "ff", cpu, "0"),
			dir:    statedir.Dir(fmt.Sprintf("%s/%d", root, number)), boot: "b1",
			clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0)),
		}
		want := maps.Clone(w.files)
		w.restart()
		values := map[string][]string{
			one: {"0-1", "4-7", "0-7"}, two: {"0", "5"}, all: {"f3", "0f"}, cpu: {"10", "n/a"},
		}
		for range rapid.IntRange(1, 12).Draw(t, "looks") {
			var settings []tune.Setting
			for _, file := range []string{all, one, two, cpu} {
				if rapid.Bool().Draw(t, "asked") {
					settings = append(settings, to(file, rapid.SampledFrom(values[file]).Draw(t, "value")))
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "another program") == 0 {
				file := rapid.SampledFrom([]string{one, two, all, cpu}).Draw(t, "file")
				w.files[file] = map[string]string{one: "6", two: "1", all: "1", cpu: "77"}[file]
				want[file] = w.files[file]
			}
			w.left = rapid.IntRange(0, 30).Draw(t, "calls")
			if w.look(settings) {
				w.restart()
			}
		}
		w.left = 0
		w.restart()
		w.find()
		if diff := cmp.Diff(want, w.files); diff != "" {
			t.Fatalf("files without pods (-want +got):\n%s", diff)
		}
		if !w.IsIdle() {
			t.Fatal("a record is left")
		}
	})
}

// look is one look of an agent; true where it was killed.
func (w *world) look(settings []tune.Setting) (ended bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			ended = true
		}
	}()
	w.Reconcile(settings)
	return false
}

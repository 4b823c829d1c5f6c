package datadir

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/testkit"
)

func folder(t *testing.T) Dir {
	t.Helper()
	d, err := Resolve(filepath.Join(t.TempDir(), "data"))
	testkit.Check(t, err)
	testkit.Check(t, d.Make())
	return d
}

func write(t *testing.T, path, text string) {
	t.Helper()
	testkit.Check(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestPortsAreKeptAcrossStarts(t *testing.T) {
	t.Parallel()
	d := folder(t)
	first, err := d.Ports()
	testkit.Check(t, err)
	numbers := first.numbers()
	first.Close()
	second, err := d.Ports()
	testkit.Check(t, err)
	defer second.Close()
	// Another process of this machine may have taken one in between: then the start must say so.
	want := numbers
	for _, m := range second.Moved {
		want[m.Service] = m.New
	}
	if diff := cmp.Diff(want, second.numbers()); diff != "" {
		t.Errorf("ports of the second start (-want +got):\n%s", diff)
	}
	saved, err := d.SavedPorts()
	testkit.Check(t, err)
	if diff := cmp.Diff(second.numbers(), saved); diff != "" {
		t.Errorf("saved ports (-want +got):\n%s", diff)
	}
}

func TestBusyPortIsReplacedAndReported(t *testing.T) {
	t.Parallel()
	d := folder(t)
	other, err := (&Ports{ephemeral: ephemeralPorts()}).listenAnywhere()
	testkit.Check(t, err)
	defer func() { _ = other.Close() }()
	busy := other.Addr().(*net.TCPAddr).Port
	testkit.Check(t, d.writeJSON("ports.json", map[Service]int{APIServer: busy}))
	p, err := d.Ports()
	testkit.Check(t, err)
	defer p.Close()
	want := []Move{{Service: APIServer, Old: busy, New: p.Port(APIServer)}}
	if diff := cmp.Diff(want, p.Moved); diff != "" {
		t.Errorf("moved (-want +got):\n%s", diff)
	}
	if p.Port(APIServer) == busy {
		t.Errorf("the API server has port %d, which another process has", busy)
	}
}

func TestEveryPortIsOnLoopback(t *testing.T) {
	t.Parallel()
	p, err := folder(t).Ports()
	testkit.Check(t, err)
	defer p.Close()
	for _, s := range Services() {
		if !strings.HasPrefix(p.Address(s), "127.0.0.1:") {
			t.Errorf("%s listens on %s, want 127.0.0.1", s, p.Address(s))
		}
	}
}

func TestPortsAreOutsideTheEphemeralRange(t *testing.T) {
	t.Parallel()
	ephemeral := ephemeralPorts()
	d := folder(t)
	write(t, d.path("ports.json"), fmt.Sprintf(`{%q: %d}`, APIServer, ephemeral.first))
	p, err := d.Ports()
	testkit.Check(t, err)
	defer p.Close()
	for _, s := range Services() {
		if port := p.Port(s); ephemeral.contains(port) {
			t.Errorf("%s has port %d, which the kernel may give to a connection (%v)", s, port, ephemeral)
		}
	}
	if len(p.Moved) != 1 || p.Moved[0].Service != APIServer || !p.Moved[0].Unsafe {
		t.Errorf("moved: %+v, want the saved port of the API server, which is in the range", p.Moved)
	}
}

func TestDamagedFilesAreNamed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file, text string
		read       func(Dir) error
	}{
		"ports that are no JSON": {"ports.json", "{", func(d Dir) error { _, err := d.SavedPorts(); return err }},
		"a port out of range": {
			"ports.json", `{"apiserver":70000}`,
			func(d Dir) error { _, err := d.SavedPorts(); return err },
		},
		"nodes that are no JSON": {
			"nodes.json", "null}",
			func(d Dir) error { _, err := d.SavedNodes(); return err },
		},
		"a node without a machine": {
			"nodes.json", `[{"name":"a"}]`,
			func(d Dir) error { _, err := d.SavedNodes(); return err },
		},
		"ports with half a file": {
			"ports.json", `{"apiserver":1`,
			func(d Dir) error { _, err := d.Ports(); return err },
		},
		"ports with the wrong type": {
			"ports.json", `{"apiserver":"x"}`,
			func(d Dir) error { _, err := d.Ports(); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := folder(t)
			write(t, d.path(test.file), test.text)
			var corrupt *Corrupt
			if err := test.read(d); !errors.As(err, &corrupt) || corrupt.File != d.path(test.file) {
				t.Errorf("got %v, want *Corrupt of %s", err, test.file)
			}
		})
	}
}

func TestOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	d := folder(t)
	lock, err := d.Lock()
	testkit.Check(t, err)
	var inUse *InUse
	if _, err := d.Lock(); !errors.As(err, &inUse) {
		t.Fatalf("second lock: %v, want *InUse", err)
	}
	if inUse.Owner.PID != os.Getpid() || !inUse.Owner.Alive() {
		t.Errorf("owner is %+v, want this live process %d", inUse.Owner, os.Getpid())
	}
	owner, running, err := d.Running()
	if err != nil || !running || owner != inUse.Owner {
		t.Errorf("Running() = %+v, %v, %v; want %+v", owner, running, err, inUse.Owner)
	}
	shared, err := syscall.Dup(int(lock.(held).Fd())) // as a child process has it between fork and exec
	testkit.Check(t, err)
	t.Cleanup(func() { _ = syscall.Close(shared) })
	testkit.Check(t, lock.Close())
	if _, running, err := d.Running(); running || err != nil {
		t.Errorf("after Close: running %v, %v", running, err)
	}
}

func TestSignalSparesALaterProcessWithTheSameID(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	testkit.Check(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	start, err := startTime(cmd.Process.Pid)
	testkit.Check(t, err)
	if err := (Owner{PID: cmd.Process.Pid, Start: start - 1}).Signal(syscall.SIGKILL); err == nil {
		t.Error("a process with another start time was signalled")
	}
	if !(Owner{PID: cmd.Process.Pid, Start: start}).Alive() {
		t.Error("the process has been killed")
	}
}

func TestFolderThatOthersOwnOrMayWriteIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		part    string
		mode    os.FileMode
		refused bool
	}{
		"private":                   {"", 0o700, false},
		"readable":                  {"", 0o755, false},
		"writable for the group":    {"", 0o770, true},
		"writable for others":       {"", 0o757, true},
		"sticky, as /tmp":           {"", 0o777 | os.ModeSticky, true},
		"certificates of the group": {"pki", 0o770, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := folder(t)
			path := d.path(test.part)
			testkit.Check(t, os.Chmod(path, test.mode))
			want := &NotPrivate{Folder: path, Owner: os.Geteuid(), User: os.Geteuid(), Mode: test.mode.Perm()}
			got := map[string]error{"Make": d.Make()}
			if test.part == "" {
				_, _, got["Running"] = d.Running()
			}
			for verb, err := range got {
				var refused *NotPrivate
				if errors.As(err, &refused) != test.refused || test.refused && *refused != *want {
					t.Errorf("%s: got %v, want refused = %v with %+v", verb, err, test.refused, want)
				}
			}
		})
	}
	t.Run("of another user", func(t *testing.T) {
		t.Parallel()
		d := folder(t)
		other := os.Geteuid() + 1
		var refused *NotPrivate
		if err := checkPrivate(d.root, other); !errors.As(err, &refused) || refused.Owner != os.Geteuid() {
			t.Errorf("the folder of user %d for user %d: %v, want *NotPrivate", os.Geteuid(), other, err)
		}
	})
}

func TestSocketPathsFitTheKernel(t *testing.T) {
	for name, root := range map[string]string{
		"a short folder": "/d",
		"a deep folder":  "/" + strings.Repeat("deep/", 40),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
			d := Dir{root: root}
			p, err := d.Socket("etcd-peer.sock")
			testkit.Check(t, err)
			if len(p) > socketPathLimit {
				t.Errorf("%s has %d bytes, limit %d", p, len(p), socketPathLimit)
			}
			if other, _ := (Dir{root: root + "x"}).Socket("etcd-peer.sock"); other == p {
				t.Errorf("two folders share %s", p)
			}
		})
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	t.Run("removes a data folder", func(t *testing.T) {
		t.Parallel()
		d := folder(t)
		lock, err := d.Lock()
		testkit.Check(t, err)
		_ = lock.Close()
		testkit.Check(t, d.Purge())
		if _, err := os.Stat(d.Root()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the folder is still there: %v", err)
		}
	})
	t.Run("spares files of others in it", func(t *testing.T) {
		t.Parallel()
		d := folder(t)
		write(t, d.path("lock"), "")
		write(t, d.path("thesis.txt"), "years of work")
		testkit.Check(t, d.Purge())
		entries, err := os.ReadDir(d.Root())
		if err != nil || len(entries) != 1 || entries[0].Name() != "thesis.txt" {
			t.Errorf("left: %v, %v; want thesis.txt alone", entries, err)
		}
	})
	t.Run("refuses another folder", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, filepath.Join(dir, "kubeconfig"), "precious")
		d, err := Resolve(dir)
		testkit.Check(t, err)
		if err := d.Purge(); err == nil {
			t.Error("a folder without a lock file was purged")
		}
		if _, err := os.Stat(filepath.Join(dir, "kubeconfig")); err != nil {
			t.Error(err)
		}
	})
	t.Run("is content with none", func(t *testing.T) {
		t.Parallel()
		d := Dir{root: filepath.Join(t.TempDir(), "absent")}
		if err := d.Purge(); err != nil {
			t.Error(err)
		}
	})
}

func TestWriteFileLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"first", "second"} {
		testkit.Check(t, WriteFile(path, []byte(text), 0o600))
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("temporary files are left: %v", entries)
	}
}

func TestPurgeRemovesTheConfigurationOfSchedulers(t *testing.T) {
	t.Parallel()
	d, err := Resolve(filepath.Join(t.TempDir(), "data"))
	testkit.Check(t, err)
	testkit.Check(t, d.Make())
	for _, file := range []string{d.SchedulerConfig(0), filepath.Join(d.Root(), "lock")} {
		testkit.Check(t, os.WriteFile(file, nil, 0o600))
	}
	testkit.Check(t, d.Purge())
	if _, err := os.Stat(d.Root()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data folder is there after a purge: %v", err)
	}
}

package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

const group = "kubepods/pod1/c1"

func TestAccessByRules(t *testing.T) {
	t.Parallel()
	null := host.DeviceFile{Path: "/dev/null", Major: 1, Minor: 3}
	card := host.DeviceFile{Path: "/dev/nvidia1", Major: 195, Minor: 1}
	for name, test := range map[string]struct {
		list                   string
		null, card, privileged bool
	}{
		"nothing":                  {"", false, false, false},
		"files that it may make":   {"c *:* m\nb *:* rwm\n", false, false, false},
		"one file":                 {"c *:* m\nc 195:1 rw\nc 195:0 rw\n", false, true, false},
		"another one":              {"c 195:11 rw\nc 95:1 rw\n", false, false, false},
		"all of a driver, to read": {"c 195:* r\n", false, true, false},
		"everything":               {"a *:* rwm\n", true, true, true},
		"lines that are none":      {"\nc\nc 195\nc 195:1\n", false, false, false},
	} {
		root := write(t, map[string]string{
			"sys/fs/cgroup/devices/" + group + "/cgroup.procs": "12\n13\n",
			"sys/fs/cgroup/devices/" + group + "/devices.list": test.list,
		})
		a, lives, err := host.ReadAccess(root, group)
		if err != nil || !lives || !a.Whole || a.Allows(null) != test.null || a.Allows(card) != test.card ||
			a.IsPrivileged() != test.privileged {
			t.Errorf("%s: got %+v, %t, %v, want null %t, card %t, privileged %t", name, a, lives, err, test.null,
				test.card, test.privileged)
		}
	}
}

func TestAccessOfNoProcess(t *testing.T) {
	t.Parallel()
	const v1, v2 = "sys/fs/cgroup/devices/" + group + "/", "sys/fs/cgroup/" + group + "/"
	for name, files := range map[string]map[string]string{
		"no group":                     {"sys/fs/cgroup/cgroup.controllers": ""},
		"no process":                   {v1 + "cgroup.procs": "", v1 + "devices.list": "a *:* rwm\n"},
		"no process with v2":           {v2 + "cgroup.procs": ""},
		"a process that has just gone": {v2 + "cgroup.procs": "12\n"},
	} {
		if a, lives, err := host.ReadAccess(write(t, files), group); lives || err != nil {
			t.Errorf("%s: got %+v, %t, %v; want none", name, a, lives, err)
		}
	}
}

// With cgroup v2 the files of the container count. The test makes them, which takes a right that not everyone has.
func TestAccessByFiles(t *testing.T) {
	t.Parallel()
	const proc = "proc/12/"
	const tmpfs = "30 1 0:5 / /dev rw - tmpfs tmpfs rw\n"
	card := host.DeviceFile{Path: "/dev/infiniband/uverbs1", Major: 195, Minor: 1}
	zero := host.DeviceFile{Path: "/dev/zero", Major: 511, Minor: 300}
	for name, test := range map[string]struct {
		mounts            string
		file              string
		card, zero, whole bool
	}{
		"its own /dev": {tmpfs, "dev/a/card", true, true, true},
		"a card that is mounted": {
			tmpfs + "31 1 0:6 /infiniband/uverbs1 /data/card rw - devtmpfs udev rw\n", "", true, true, true,
		},
		"a folder that is mounted": {
			tmpfs + "31 1 0:6 /infiniband /data rw - devtmpfs udev rw\n", "", true, true, true,
		},
		"another one that is mounted": {
			tmpfs + "31 1 0:6 /infiniband/uverbs10 /data rw - devtmpfs udev rw\n", "", false, true, true,
		},
		"no card":                {tmpfs, "", false, true, true},
		"a file outside of /dev": {tmpfs, "data/card", false, true, true},
		"the machine's /dev":     {"30 1 0:6 / /dev rw - devtmpfs udev rw\n", "dev/card", false, false, false},
		"the machine's /dev below its own": {
			"30 1 0:6 / /dev rw - devtmpfs udev rw\n" + tmpfs, "dev/card", true, true, true,
		},
		"the machine's /dev in a folder": {tmpfs + "32 1 0:6 / /host/dev rw - devtmpfs x rw\n", "", false, true, true},
		"lines of another kernel":        {tmpfs + "nonsense\n", "dev/card", true, true, true},
	} {
		root := write(t, map[string]string{
			"sys/fs/cgroup/" + group + "/cgroup.procs": "12\n", proc + "mountinfo": test.mounts,
			proc + "root/dev/shm/x": "", proc + "root/host/dev/x": "", proc + "root/data/x": "",
		})
		mknod := func(file string, major, minor int) {
			at := root.Path(proc, "root", file)
			err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), syscall.Mknod(at, syscall.S_IFCHR|0o600,
				major<<8|minor&0xff|minor>>8<<20))
			if errors.Is(err, syscall.EPERM) {
				text := "NOT RUN: " + t.Name() + ": device files cannot be made here"
				fmt.Println(text) //nolint:forbidigo // seen without -v
				t.Skip(text)
			}
			testkit.Check(t, err)
		}
		mknod("dev/zero", 511, 300)
		if test.file != "" {
			mknod(test.file, 195, 1)
		}
		a, lives, err := host.ReadAccess(root, group)
		if err != nil || !lives || a.Whole != test.whole || a.Allows(card) != test.card ||
			a.Allows(zero) != test.zero || a.IsPrivileged() {
			t.Errorf("%s: got %+v, %t, %v, want card %t, zero %t, whole %t", name, a, lives, err, test.card, test.zero,
				test.whole)
		}
	}
}

// What a container fills its /dev with costs no more than a bounded time.
func TestAccessOfAFolderWithoutEnd(t *testing.T) {
	t.Parallel()
	root := write(t, map[string]string{
		"sys/fs/cgroup/" + group + "/cgroup.procs": "12\n", "proc/12/mountinfo": "", "proc/12/root/dev/x": "",
	})
	for i := range 4096 {
		testkit.Check(t, os.Mkdir(root.Path("proc/12/root/dev", strconv.Itoa(i)), 0o755))
	}
	if _, lives, err := host.ReadAccess(root, group); lives || err == nil ||
		!strings.Contains(err.Error(), "has more than 4096 entries") {
		t.Errorf("got %t, %v, want the number of entries", lives, err)
	}
}

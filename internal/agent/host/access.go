package host

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Access is which character devices the processes of a container can use.
type Access struct {
	// Whole is false where only a part can be read: the container may be able to use more than Allows says.
	Whole bool
	rules []rule
	paths []string // files of the machine's /dev, or folders of it
}

// rule is a device that is allowed; -1 stands for any number.
type rule struct{ major, minor int64 }

// Allows reports whether the container can use a device file.
func (a *Access) Allows(f DeviceFile) bool {
	for _, r := range a.rules {
		if (r.major == f.Major || r.major < 0) && (r.minor == f.Minor || r.minor < 0) {
			return true
		}
	}
	return slices.ContainsFunc(a.paths, func(p string) bool { return p == f.Path || strings.HasPrefix(f.Path, p+"/") })
}

// IsPrivileged reports whether the container can use every device.
func (a *Access) IsPrivileged() bool { return a.Allows(DeviceFile{Major: -2, Minor: -2}) }

// ReadAccess reads what the processes in a cgroup can use of character devices; false where no process lives in it.
//
//	cgroup v1    the rules of the devices controller: the kernel's word, whatever the container's files are
//	cgroup v2    the files of its /dev, which runtimes make for what they allow, and those that are mounted from the
//	             machine's. A reader without CAP_SYS_PTRACE sees the latter alone
func ReadAccess(root Root, group string) (a Access, lives bool, err error) {
	pids, err := os.ReadFile(root.Cgroup("devices", group, "cgroup.procs"))
	v1 := err == nil
	if !v1 {
		pids, err = os.ReadFile(root.Cgroup(group, "cgroup.procs"))
	}
	pid, _, _ := strings.Cut(string(pids), "\n")
	switch {
	case isMissing(err) || errors.Is(err, unix.ENODEV) || err == nil && pid == "":
		return a, false, nil
	case err == nil && v1:
		var text []byte
		text, err = os.ReadFile(root.Cgroup("devices", group, "devices.list"))
		a = ParseAccess(string(text))
	case err == nil:
		err = a.readMounts(root.Path("proc", pid))
	}
	if isMissing(err) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ESRCH) {
		return a, false, nil // it has just ended
	}
	return a, err == nil, err
}

// ParseAccess reads the rules of a devices controller, lines such as "c 195:0 rwm". One without r and w lets a
// container make the file and no more.
func ParseAccess(text string) Access {
	a := Access{Whole: true}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] == "b" || !strings.ContainsAny(f[2], "rw") {
			continue
		}
		major, minor, _ := strings.Cut(f[1], ":")
		a.rules = append(a.rules, rule{ruleNumber(major), ruleNumber(minor)})
	}
	return a
}

func ruleNumber(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return -1 // "*"
	}
	return n
}

// maxEntries bounds how much of a folder of a container is read, which its processes fill as they like.
const maxEntries = 4096

// readMounts reads the device files of a process.
func (a *Access) readMounts(process string) error {
	text, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		return err
	}
	shared := false // /dev is the machine's: it does not say what the container may use of it
	for line := range strings.Lines(string(text)) {
		mount, system, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if len(f) < 5 {
			continue
		}
		machines := strings.HasPrefix(system, "devtmpfs ")
		if machines && f[3] != "/" {
			a.paths = append(a.paths, "/dev"+f[3])
		}
		if f[4] == "/dev" { // the last one covers the others
			shared = machines && f[3] == "/"
		}
	}
	if shared {
		return nil
	}
	err = a.readFiles(filepath.Join(process, "root/dev"))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	a.Whole = err == nil
	return err
}

// readFiles adds the character devices in a folder. No link is followed.
func (a *Access) readFiles(at string) error {
	entries := 0
	return filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if entries++; err != nil || entries > maxEntries {
			return cmp.Or(err, fmt.Errorf("%s has more than %d entries", at, maxEntries))
		}
		if d.Type()&fs.ModeCharDevice == 0 {
			return nil
		}
		var s unix.Stat_t
		if err := unix.Lstat(path, &s); err != nil {
			return nil //nolint:nilerr // it is gone
		}
		a.rules = append(a.rules, rule{int64(unix.Major(s.Rdev)), int64(unix.Minor(s.Rdev))})
		return nil
	})
}

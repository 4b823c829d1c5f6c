package app

import (
	"debug/elf"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropPages unmaps the pages of the program that are not written to; those that are needed come back from the page cache.
// Programs that the loader relocates have changed pages among them and are left alone. Nothing depends on its success.
func dropPages() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil || !isFixed() {
		return
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(maps)) {
		// 00400000-019b0000 r-xp 00000000 fe:00 1234   /usr/bin/tenon-agent
		f := strings.Fields(line)
		if len(f) < 6 || f[5] != program || strings.Contains(f[1], "w") {
			continue
		}
		first, last, _ := strings.Cut(f[0], "-")
		from, err1 := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(last, 16, 64)
		if err1 == nil && err2 == nil {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED)
		}
	}
}

// isFixed reports whether the program lies where it was linked to, so that no page of it was changed at the start.
func isFixed() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false
	}
	fixed := f.Type == elf.ET_EXEC
	_ = f.Close() // it was only read
	return fixed
}

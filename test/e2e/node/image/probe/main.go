//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// poll is the time between two looks at the kernel's answer.
const poll = 200 * time.Millisecond

// watched are the lines of /proc/self/status that can change.
var watched = []string{"Cpus_allowed_list", "Mems_allowed_list"}

func main() {
	last := map[string]string{}
	printChanges(last)
	printEnvironment()
	printDevices()
	tryDevices(os.Args[1:])
	printMounts()
	fmt.Println("ready=")
	if slices.Contains(os.Args[1:], "once") {
		return
	}
	if slices.Contains(os.Args[1:], "burn") {
		burn()
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	tick := time.NewTicker(poll)
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			printChanges(last)
		}
	}
}

func printChanges(last map[string]string) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		fmt.Printf("error=%v\n", err)
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		if slices.Contains(watched, key) && last[key] != value {
			last[key] = value
			fmt.Printf("%s=%s\n", key, value)
		}
	}
}

func printEnvironment() {
	for _, e := range os.Environ() {
		fmt.Printf("env:%s\n", strings.ReplaceAll(e, "\n", `\n`))
	}
}

func printDevices() {
	_ = filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				fmt.Printf("dev:%s=%o\n", path, info.Mode().Perm())
			}
		}
		return nil // what cannot be read is not there for us
	})
}

// tryDevices opens the character devices that arguments such as open=240:0 name. A device without a driver answers
// ENXIO where the container may use it, EPERM where not.
func tryDevices(args []string) {
	for _, arg := range args {
		numbers, asked := strings.CutPrefix(arg, "open=")
		var major, minor uint32
		if _, err := fmt.Sscanf(numbers, "%d:%d", &major, &minor); !asked || err != nil {
			continue
		}
		path := fmt.Sprintf("/dev/probe-%d-%d", major, minor)
		err := syscall.Mknod(path, syscall.S_IFCHR|0o600, int(major<<8|minor&0xff))
		if err == nil {
			var fd int
			if fd, err = syscall.Open(path, syscall.O_RDWR, 0); err == nil {
				_ = syscall.Close(fd)
			}
			_ = os.Remove(path)
		}
		switch {
		case errors.Is(err, syscall.ENXIO):
			fmt.Printf("open:%s=ENXIO\n", numbers)
		case errors.Is(err, syscall.EPERM):
			fmt.Printf("open:%s=EPERM\n", numbers)
		default:
			fmt.Printf("open:%s=%v\n", numbers, err)
		}
	}
}

func printMounts() {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		fmt.Printf("error=%v\n", err)
		return
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		mount, system, _ := strings.Cut(line, " - ")
		left, right := strings.Fields(mount), strings.Fields(system)
		if len(left) > 4 && len(right) > 0 {
			fmt.Printf("mount:%s=%s\n", left[4], right[0])
		}
	}
}

// burn keeps every CPU busy that the kernel gives, now and after a change of the set.
func burn() {
	threads := runtime.NumCPU()
	runtime.GOMAXPROCS(threads + 1)
	for range threads {
		go func() {
			for n := 1.0; n > 0; {
				n = math.Sqrt(n + 1)
			}
		}()
	}
}

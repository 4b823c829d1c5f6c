package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// scratch is where the managers keep their checkpoints once the process is isolated: memory, private to the process.
const scratch = "/var/lib"

const isolated = "ORACLE_ISOLATED"

// isolate runs the program again in a mount namespace of its own, where /var/lib is empty memory: the device manager
// has its folder fixed at /var/lib/kubelet/device-plugins and the host's must not be touched. It returns only in the
// isolated process, or with false where the host allows no namespace.
func isolate() (bool, error) {
	switch os.Getenv(isolated) {
	case "yes":
		if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
			return false, fmt.Errorf("make mounts private: %w", err)
		}
		if err := syscall.Mount("oracle", scratch, "tmpfs", 0, "size=64m"); err != nil {
			return false, fmt.Errorf("mount memory on %s: %w", scratch, err)
		}
		return true, nil
	case "no":
		return false, nil
	}
	// The child dies with the thread that started it, so that thread must not exit.
	runtime.LockOSThread()
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	cmd := exec.CommandContext(context.Background(), self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), isolated+"=yes")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return false,
			nil //nolint:nilerr // no namespace here: the device manager does not run, which the first answer says
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		return false, err
	}
	os.Exit(0)
	return false, nil
}

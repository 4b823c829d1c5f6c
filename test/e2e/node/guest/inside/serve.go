package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

const (
	// portName is what the host calls the port; the kernel numbers them.
	portName = "tenon"
	// outputLimit bounds what one answer carries, in bytes.
	outputLimit = 8 << 20
	// reopen is the pause before the port is opened again, when the host has let go of it.
	reopen = 20 * time.Millisecond
)

// serve answers requests for as long as the guest lives.
func serve() error {
	path, err := port()
	if err != nil {
		return err
	}
	for {
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("open port: %w", err)
		}
		converse(file)
		file.Close()
		time.Sleep(reopen)
	}
}

// port returns the device of the port that is named portName.
func port() (string, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if text, err := os.ReadFile(name); err == nil && string(text) == portName+"\n" {
			return filepath.Join("/dev", filepath.Base(filepath.Dir(name))), nil
		}
	}
	return "", errors.New("no virtio port is named " + portName)
}

// converse answers requests until the host lets go of the port.
func converse(file *os.File) {
	var writing sync.Mutex // one answer at a time
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var r wire.Request
		if err := json.Unmarshal(line, &r); err != nil {
			continue // the rest of a line that an earlier host began
		}
		go func() {
			text, err := json.Marshal(answer(r))
			if err != nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_, _ = file.Write(append(text, '\n')) // no reader is left when the host is gone
		}()
	}
}

func answer(r wire.Request) wire.Answer {
	a := wire.Answer{ID: r.ID}
	if r.Clock != 0 {
		now := syscall.NsecToTimeval(r.Clock)
		if err := syscall.Settimeofday(&now); err != nil {
			return wire.Answer{ID: r.ID, Code: -1, Error: fmt.Sprintf("set clock: %v", err)}
		}
	}
	if r.Run != "" {
		run(&a, r)
	}
	return a
}

func run(a *wire.Answer, r wire.Request) {
	ctx, cancel := context.Background(), func() {}
	if r.LimitMillis > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.LimitMillis)*time.Millisecond)
	}
	defer cancel()
	out, err := os.CreateTemp("", "out")
	if err != nil {
		a.Code, a.Error = -1, err.Error()
		return
	}
	defer func() { _ = os.Remove(out.Name()) }()
	defer out.Close()
	// A file, not a pipe: what the script leaves running in the background must not keep the answer waiting.
	c := exec.CommandContext(ctx, "/bin/sh", "-c", r.Run)
	c.Stdout, c.Stderr = out, out
	c.Env = append(os.Environ(), "PATH=/bin:/sbin:/opt/tenon", "HOME=/root")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	err = c.Run()
	text, _ := os.ReadFile(out.Name())
	if len(text) > outputLimit {
		text = text[:outputLimit]
	}
	a.Out = string(text)
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		a.Code, a.Error = -1, "took longer than its limit"
	case errors.As(err, &exit):
		a.Code = exit.ExitCode()
	case err != nil:
		a.Code, a.Error = -1, err.Error()
	}
}

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tenon-project/tenon/test/e2e/node/fold"
)

// Names under which the records tell who asked.
const (
	byCreate = "runc create"
	byUpdate = "runc update"
)

type wrapper struct {
	settings
	store fold.Store
}

// create folds the bundle's config.json and runs runc.
func (w wrapper) create(c command) error {
	file := filepath.Join(c.bundle, "config.json")
	spec, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	path := []string{"linux", "resources", "cpu"}
	asked, err := cpusetOf(spec, path...)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	spec, err = folded(spec, w.CPUs, path...)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		return err
	}
	return w.store.Change(c.id, byCreate, func(fold.Set) fold.Set { return asked }, func(fold.Set) error {
		return w.runc(c.args, os.Stdin)
	})
}

// update folds the resources on standard input and runs runc.
func (w wrapper) update(c command) error {
	for _, name := range []string{"cpuset-cpus", "cpuset-mems"} {
		if c.flags[name] != "" {
			return fmt.Errorf("update --%s is not folded: use --resources=-", name)
		}
	}
	if c.resources == "" {
		return w.runc(c.args, os.Stdin)
	}
	if c.resources != "-" {
		return fmt.Errorf("update --resources=%s is not folded: use --resources=-", c.resources)
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	asked, err := cpusetOf(text, "cpu")
	if err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	text, err = folded(text, w.CPUs, "cpu")
	if err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	return w.store.Change(c.id, byUpdate, func(now fold.Set) fold.Set {
		if asked.CPUs != "" { // "" means unchanged here
			now.CPUs = asked.CPUs
		}
		if asked.Mems != "" {
			now.Mems = asked.Mems
		}
		return now
	}, func(fold.Set) error { return w.runc(c.args, bytes.NewReader(text)) })
}

// runc runs the real one. A file is handed over as it is.
func (w wrapper) runc(args []string, in io.Reader) error {
	cmd := exec.CommandContext(context.Background(), w.Runc, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, os.Stdout, os.Stderr
	return cmd.Run()
}

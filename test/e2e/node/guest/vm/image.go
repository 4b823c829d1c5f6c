package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// snapshotName is that of the saved state inside a prepared disk.
	snapshotName = "ready"
	// programsMiB is the size of the disk with the programs. It is part of the snapshot: always the same.
	programsMiB = 384
	// unfinished begins the names of disks that are being prepared; the process id follows.
	unfinished = "unfinished-"
	// attempts is how often a guest is booted: emulated kernels panic once in a long while.
	attempts = 2
)

// Image is a folder with what guests boot, as hack/node/guest.sh makes it: vmlinuz, initrd and root.ext4. Prepared
// snapshots are kept in it.
type Image struct{ Dir string }

func (i Image) file(name string) string { return filepath.Join(i.Dir, name) }

// Check returns an error that names the first file that is missing.
func (i Image) Check() error {
	for _, name := range []string{"vmlinuz", "initrd", "root.ext4"} {
		if _, err := os.Stat(i.file(name)); err != nil {
			return fmt.Errorf("guest image: %w", err)
		}
	}
	return nil
}

// Prepare returns a disk that holds a saved guest of that shape, in which script has run. It is made where there is
// none for the same shape and script; that takes a boot.
func (i Image) Prepare(ctx context.Context, s Shape, script string) (string, error) {
	if err := errors.Join(s.check(), i.Check()); err != nil {
		return "", err
	}
	name, err := i.snapshot(ctx, s, script)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	for attempt := 1; ; attempt++ {
		err := i.prepare(ctx, s, script, name)
		if err == nil {
			return name, i.dropOthers(s, name)
		}
		if attempt == attempts || !errors.Is(err, ErrEnded) {
			return "", fmt.Errorf("prepare a guest of shape %s: %w", s.Name, err)
		}
	}
}

// dropOthers removes disks that were prepared for the same shape from something else.
func (i Image) dropOthers(s Shape, keep string) error {
	found, err := filepath.Glob(i.file(s.Name + "-*.qcow2"))
	var errs []error
	for _, path := range found {
		if path != keep {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(append(errs, err)...)
}

// snapshot names the prepared disk after all that it depends on.
func (i Image) snapshot(ctx context.Context, s Shape, script string) (string, error) {
	version, err := exec.CommandContext(ctx, Program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", Program, err)
	}
	root, err := os.Stat(i.file("root.ext4"))
	if err != nil {
		return "", fmt.Errorf("guest image: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n%d\n", version, strings.Join(arguments("", i, s, disks{}, ""), "\n"), script,
		root.ModTime().UnixNano())
	return i.file(fmt.Sprintf("%s-%s.qcow2", s.Name, hex.EncodeToString(sum.Sum(nil))[:12])), nil
}

// prepare boots, runs script, saves, and puts the disk in its place.
func (i Image) prepare(ctx context.Context, s Shape, script, name string) (err error) {
	dir, err := os.MkdirTemp("", workPrefix())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d := disks{
		overlay: i.file(fmt.Sprintf("%s%d-%s", unfinished, os.Getpid(), filepath.Base(name))),
		backing: i.file("root.ext4"), programs: filepath.Join(dir, "programs"),
	}
	defer func() { _ = os.Remove(d.overlay) }() // gone already where all went well
	if err := i.overlay(ctx, d.overlay); err != nil {
		return err
	}
	if err := blank(d.programs); err != nil {
		return err
	}
	m, err := launch(dir, i, s, d, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.kill()) }()
	g, err := greet(ctx, m)
	if err != nil {
		return err
	}
	if _, err := g.Run(ctx, script); err != nil {
		return err
	}
	g.port.conn.Close()
	if err := m.order(ctx, "savevm "+snapshotName); err != nil {
		return err
	}
	if err := m.kill(); err != nil {
		return err
	}
	if err := os.Rename(d.overlay, name); err != nil {
		return fmt.Errorf("keep the snapshot: %w", err)
	}
	return nil
}

// overlay makes an empty disk over the image's root.
func (i Image) overlay(ctx context.Context, path string) error {
	out, err := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b",
		i.file("root.ext4"), path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("qemu-img create: %w: %s", err, out)
	}
	return nil
}

// blank makes an empty disk for programs.
func blank(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(programsMiB<<20), f.Close())
}

// pack writes the files into a file system on a disk for programs.
func pack(ctx context.Context, path string, programs map[string]string) error {
	folder, err := os.MkdirTemp(filepath.Dir(path), "pack")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // in a folder that goes with the guest
	for name, source := range programs {
		if err := place(source, filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("program %s: %w", name, err)
		}
	}
	if err := blank(path); err != nil {
		return err
	}
	mke2fs, err := exec.LookPath("mke2fs")
	if err != nil {
		mke2fs = "/usr/sbin/mke2fs" // no folder of a plain user's PATH
	}
	out, err := exec.CommandContext(ctx, mke2fs, "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d",
		folder, path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, out)
	}
	return nil
}

// place copies a program.
func place(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

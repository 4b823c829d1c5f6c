package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// Program is the emulator.
	Program = "qemu-system-x86_64"
	// bootLimit bounds the time from the start of the emulator to the guest's first answer. Idle machines need 6 s.
	bootLimit = 4 * time.Minute
	// stopLimit bounds the wait for a killed emulator.
	stopLimit = 20 * time.Second
)

// ErrEnded is in the error of what failed because the emulator ended.
var ErrEnded = errors.New("the emulator ended")

// machine is a running emulator with its sockets.
type machine struct {
	dir     string // its sockets and its console's file
	command *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	how     error         // why; read after ended
}

// disks are the files of a machine.
type disks struct {
	overlay  string // qcow2; written, holds the snapshot
	backing  string // raw, below overlay
	programs string // raw, read-only
}

// launch starts the emulator in dir. snapshot is resumed from, or "" for a boot.
func launch(dir string, i Image, s Shape, d disks, snapshot string) (*machine, error) {
	log, err := os.Create(filepath.Join(dir, "qemu.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	m := &machine{dir: dir, ended: make(chan struct{})}
	// It lives until it is killed, or this process ends.
	m.command = exec.CommandContext(context.Background(), Program, arguments(dir, i, s, d, snapshot)...)
	m.command.Stdout, m.command.Stderr = log, log
	// It must not outlive the test, however that ends.
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", Program, err)
	}
	go func() {
		m.how = m.command.Wait()
		close(m.ended)
	}()
	return m, nil
}

func arguments(dir string, i Image, s Shape, d disks, snapshot string) []string {
	args := []string{
		// One thread for all CPUs: with one each, kernels were lost to missed self-modified code.
		"-M", "q35,usb=off,hpet=off", "-accel", "tcg,thread=single,tb-size=512",
		// AMD models hide threads and dies from the kernel.
		"-cpu", "max,vendor=GenuineIntel",
	}
	args = append(args, s.arguments()...)
	// A panic ends the emulator instead of hanging it.
	kernel := "console=ttyS0 panic=-1 quiet mitigations=off nokaslr"
	if s.Systemd {
		kernel += " systemd"
	}
	if s.Kernel != "" {
		kernel += " " + s.Kernel
	}
	if s.Steady {
		args = append(args, "-icount", "shift=3,sleep=on")
	}
	network := "user,id=net"
	switch {
	case s.Tap != "" && snapshot == "": // a network inside the emulator would be part of what is saved
		network = "hubport,id=net,hubid=0"
		args = append(args, "-netdev", "hubport,id=sink,hubid=0") // without it the guest could not send
	case s.Tap != "":
		network = "tap,id=net,script=no,downscript=no,vnet_hdr=off,ifname=" + s.Tap
	}
	args = append(args,
		"-kernel", i.file("vmlinuz"), "-initrd", i.file("initrd"),
		"-append", kernel, "-no-reboot",
		"-drive",
		fmt.Sprintf("driver=qcow2,file.driver=file,file.filename=%s,backing.driver=raw,backing.file.driver=file,"+
			"backing.file.filename=%s,if=none,id=root", d.overlay, d.backing),
		"-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-drive", fmt.Sprintf("driver=raw,file.driver=file,file.filename=%s,read-only=on,if=none,id=programs",
			d.programs),
		"-device", "virtio-blk-pci,drive=programs,bus=pcie.0",
		"-netdev", network, "-device", "virtio-net-pci,netdev=net,bus=pcie.0,romfile=",
		"-device", "virtio-serial-pci,bus=pcie.0",
		"-chardev", "socket,id=port,server=on,wait=off,path="+filepath.Join(dir, "port"),
		"-device", "virtserialport,chardev=port,name=tenon",
		"-display", "none", "-vga", "none",
		"-serial", "file:"+filepath.Join(dir, "console"),
		"-monitor", "unix:"+filepath.Join(dir, "monitor")+",server=on,wait=off",
	)
	if snapshot != "" {
		args = append(args, "-loadvm", snapshot)
	}
	return args
}

// dial connects to one of the machine's sockets as soon as it is there.
func (m *machine) dial(ctx context.Context, socket string) (net.Conn, error) {
	var dialer net.Dialer
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := dialer.DialContext(ctx, "unix", filepath.Join(m.dir, socket))
		if err == nil {
			return conn, nil
		}
		select {
		case <-tick.C:
		case <-m.ended:
			return nil, m.fault()
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to the emulator's %s: %w", socket, errors.Join(ctx.Err(), err))
		}
	}
}

// fault says why the machine ended, with the last lines that it and its emulator wrote.
func (m *machine) fault() error {
	return fmt.Errorf("%w (%w)\n%s\n%s", ErrEnded, m.how, tail(filepath.Join(m.dir, "qemu.log")),
		tail(filepath.Join(m.dir, "console")))
}

// kill ends the machine at once and waits until it is gone.
func (m *machine) kill() error {
	if err := m.command.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the emulator: %w", err)
	}
	select {
	case <-m.ended:
		return nil
	case <-time.After(stopLimit):
		return fmt.Errorf("the emulator, process %d, did not end within %v of SIGKILL", m.command.Process.Pid,
			stopLimit)
	}
}

// tail returns the last lines of a file; it serves error texts only.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

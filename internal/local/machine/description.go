package machine

import (
	"context"
	"errors"
	"fmt"
	"os"

	"k8s.io/utils/clock"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/core/topo"
)

// Description is one kind of simulated machine.
type Description struct {
	// Name is the preset's name, or the capture's file name made fit for a node name.
	Name string
	// Summary is one line for people.
	Summary string
	// Lasting is the one canonical spelling of the spec that Parse read: without a count and, as a later start may
	// happen in another folder, with an absolute path.
	Lasting string
	// Kubelet is how the simulated kubelet handles CPUs and topology.
	Kubelet annotation.Kubelet
	// Follow asks, by the node's label, that the scheduler predicts what the kubelet will choose and leaves it the
	// choice.
	Follow bool

	arch, model string
	shape       shape
	board       board
	capture     string         // archive or folder; "" for a machine that is generated
	captured    []host.Dropped // devices of the capture
	topology    *topo.Machine  // what the capture's files say, the parts that Of was given, or the shape
}

// Of describes a machine that is not a preset: its parts, the CPU's model as /proc/cpuinfo has it, and kubelet settings
// as behind the "@" of a spec. The settings are completed and checked as those of Parse.
func Of(name, model string, parts topo.Spec, settings string) (Description, error) {
	d := Description{Name: name, Summary: name, arch: parts.Arch, model: model}
	var err error
	if d.topology, err = topo.New(parts); err == nil {
		err = d.configure(settings)
	}
	if err != nil {
		return Description{}, fmt.Errorf("machine %s: %w", name, err)
	}
	return d, nil
}

// Write creates the machine's tree under dir, which must not exist or be empty: dir/sys and dir/proc.
func (d Description) Write(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var entries []os.DirEntry
		if entries, err = os.ReadDir(dir); len(entries) > 0 {
			err = fmt.Errorf("%s is not empty", dir)
		}
	}
	if err == nil {
		err = d.writeTree(dir)
	}
	if err != nil {
		return fmt.Errorf("write machine %s: %w", d.Name, err)
	}
	return nil
}

func (d Description) writeTree(dir string) error {
	if d.capture != "" {
		return Unpack(d.capture, dir)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.generate(newStore(root)), root.Close())
}

// Arch returns the GOARCH to assume where the tree does not tell.
func (d Description) Arch() string { return d.arch }

// Spec returns what the machine consists of.
func (d Description) Spec() topo.Spec {
	if d.topology != nil {
		return d.topology.Spec()
	}
	return d.shape.spec(d.arch)
}

// Topology returns the machine that an agent reads from the written tree.
func (d Description) Topology() (*topo.Machine, error) {
	if d.topology != nil {
		return d.topology, nil
	}
	return topo.New(d.Spec())
}

// Read writes the machine's tree to a temporary folder and returns the machine that an agent reads from it.
func (d Description) Read() (*topo.Machine, error) {
	err := d.read()
	return d.topology, err
}

// read sets what the written tree says: the topology, and the devices of a capture, as far as they can be read.
func (d *Description) read() error {
	// Where Linux keeps a file system in memory a capture is unpacked in a tenth of the time. There may be too little
	// memory, or none of this kind.
	if d.readIn("/dev/shm") == nil {
		return nil
	}
	return d.readIn("")
}

func (d *Description) readIn(scratch string) error {
	dir, err := os.MkdirTemp(scratch, "tenon-machine-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := d.writeTree(dir); err != nil {
		return err
	}
	root := host.Root{Dir: dir}
	r, err := host.Read(root, d.arch)
	if err != nil {
		return err
	}
	if d.topology = r.Machine; d.capture == "" {
		return nil
	}
	found, _ := inventory.New(inventory.Options{
		Root: root, Drivers: inventory.Sysfs(root), Clock: clock.RealClock{},
	})
	_, _ = found.Refresh(context.Background())
	d.captured = found.Devices(nil)
	return nil
}

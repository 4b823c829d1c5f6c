package tune

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// Files are the files of a machine, by their paths below its root. A missing file is an error for which errors.Is(err,
// fs.ErrNotExist) holds; refusals of the kernel are the errno that it gave.
type Files interface {
	// Read returns the content of a file without surrounding white space.
	Read(file string) (string, error)
	// Write hands a value to the kernel in one write.
	Write(file, value string) error
	// Identity returns what a file is about now.
	Identity(file string) string
}

// machine is the Files of a mounted machine.
type machine struct{ root host.Root }

// Open returns the files below a Root, and the bans of the irqbalance that runs there as the file Bans.
func Open(root host.Root) Files { return machine{root} }

// Read implements Files.
func (m machine) Read(file string) (string, error) {
	if file == Bans {
		return readBans(m.root)
	}
	text, err := os.ReadFile(m.root.Path(file))
	return strings.Trim(string(text), " \t\r\n\x00"), err
}

// Write implements Files. Package os repeats calls that a signal interrupted. The kernel ignores that the file is cut
// off, and the files of a simulated machine need it.
func (m machine) Write(file, value string) (err error) {
	if file == Bans {
		return writeBans(m.root, value)
	}
	f, err := os.OpenFile(m.root.Path(file), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = f.WriteString(value)
	return err
}

// Identity implements Files. Interrupts have the names of their handlers, their chip and their number there; irqbalance
// has its process.
func (m machine) Identity(file string) string {
	if file == Bans {
		name, _ := balancer(m.root)
		return name
	}
	number, isInterrupt := interruptOf(file)
	if !isInterrupt {
		return ""
	}
	var parts []string
	for _, name := range []string{"actions", "chip_name", "hwirq"} {
		text, _ := m.Read(path.Join("sys/kernel/irq", number, name))
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// interruptOf returns the number of the interrupt whose affinity a file is.
func interruptOf(file string) (number string, yes bool) {
	rest, below := strings.CutPrefix(file, interrupts+"/")
	number, isAffinity := strings.CutSuffix(rest, "/"+affinityFile)
	return number, below && isAffinity
}

// equal reports whether two contents of a file are one value.
func equal(file, a, b string) bool { return canonical(file, a) == canonical(file, b) }

// canonical returns the content of a file as its value is always written: CPUs as a list. A content that cannot be read
// is its own value.
func canonical(file, text string) string {
	if !isSet(file) {
		return text
	}
	cpus, err := parseCPUs(file, text)
	if err != nil {
		return text
	}
	return cpuset.FormatIDs(cpus)
}

// isSet reports whether a file contains CPUs.
func isSet(file string) bool {
	_, isInterrupt := interruptOf(file)
	return isInterrupt || file == defaultAffinity || file == Bans
}

// parseCPUs reads the CPUs of a file that contains some.
func parseCPUs(file, text string) ([]int, error) {
	if file == defaultAffinity {
		return host.ParseMap(text)
	}
	return cpuset.ParseIDs(text)
}

// isGone reports whether what a file is about does not exist any more.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }

package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/machine"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/local/plane"
)

// The free disk space that a start needs. The first start makes etcd's write-ahead segments, certificates, machines and
// logs; later starts find most of that.
const (
	leastFreeFirst = 256 << 20
	leastFreeLater = 64 << 20
)

// Fault is an error with a text for users: what is wrong, and what to do.
type Fault struct {
	What   string
	Remedy string
	Err    error
}

func (f *Fault) Error() string { return f.What + "\n" + f.Remedy }

func (f *Fault) Unwrap() error { return f.Err }

// ExitCode keeps a full disk from being taken for an unreachable cluster: system errors look like network errors.
func (f *Fault) ExitCode() int { return 1 }

// Explain returns err as a *Fault if a user can remedy it.
func Explain(err error, dir datadir.Dir) error {
	var (
		inUse      *datadir.InUse
		notPrivate *datadir.NotPrivate
		corrupt    *datadir.Corrupt
		broken     *pki.Broken
		store      *plane.StoreError
		data       *plane.DataError
		fault      *Fault
	)
	var what string
	remedy := "choose another folder with --data"
	switch {
	case err == nil, errors.As(err, &fault):
		return err
	case errors.As(err, &inUse):
		what, remedy = inUse.Error(), fmt.Sprintf("stop it with: tenon down%s, or %s", dir.Flag(), remedy)
	case errors.As(err, &notPrivate):
		what = notPrivate.Error()
		if notPrivate.Owner == notPrivate.User {
			remedy = fmt.Sprintf("look for files of others in it, then: chmod go-w %s; or %s", notPrivate.Folder,
				remedy)
		}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		what = fmt.Sprintf("the disk that holds %s is full (%v)", dir.Root(), err)
		remedy = "free some space and start again: what was written is kept; or " + remedy
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		what = fmt.Sprintf("%s cannot be written (%v)", dir.Root(), err)
		remedy = "make it writable for this user, or " + remedy
	case errors.Is(err, syscall.ENOTDIR):
		what = fmt.Sprintf("%s is not a folder (%v)", dir.Root(), err)
	case errors.As(err, &corrupt):
		what, remedy = corrupt.Error(), "remove the file: it is created again, and the cluster loses nothing"
	case errors.As(err, &broken):
		what = fmt.Sprintf("the cluster's certificates are damaged: %v", broken)
		remedy = fmt.Sprintf("remove %s: new ones are made, and copies of the old kubeconfig stop working", dir.PKI())
	case errors.As(err, &data):
		what = data.Error()
		remedy = fmt.Sprintf("%s, or start afresh with: tenon down --purge%s (all objects of the cluster are lost)",
			remedy, dir.Flag())
	case errors.As(err, &store):
		what = fmt.Sprintf("the cluster's store is damaged: %v", store)
		remedy = fmt.Sprintf("start afresh with: tenon down --purge%s (all objects of the cluster are lost)",
			dir.Flag())
	default:
		return err
	}
	return &Fault{what, remedy, err}
}

func checkSpace(dir datadir.Dir) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir.Root(), &s); err != nil {
		return fmt.Errorf("ask for free space at %s: %w", dir.Root(), err)
	}
	need := uint64(leastFreeLater)
	if entries, err := os.ReadDir(dir.Etcd()); err != nil || len(entries) == 0 {
		need = leastFreeFirst
	}
	if free := s.Bavail * uint64(s.Bsize); free < need {
		return &Fault{
			What: fmt.Sprintf("the disk that holds %s has %d MiB free, a cluster needs %d", dir.Root(), free>>20,
				need>>20),
			Remedy: "free some space, or choose another folder with --data",
			Err:    syscall.ENOSPC,
		}
	}
	return nil
}

// DefaultMachines returns the machines of a cluster that is started without a list of machines.
func DefaultMachines() []string { return []string{"epyc-2s=2", "epyc-256", "arm64-1s", "hgx-h100"} }

// ExitError is an error with the exit code of the program; that of bad input, such as a list of machines that cannot be
// used, is 2.
type ExitError struct {
	Err  error
	Code int
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the program.
func (e *ExitError) ExitCode() int { return e.Code }

// Expand returns the nodes of machine specs. If count is not 0, the list is repeated or cut to that length. Nodes are
// named after their machine and numbered.
func Expand(specs []string, count int) ([]datadir.Node, error) {
	var list []datadir.Node
	for _, spec := range specs {
		d, n, err := machine.Parse(spec)
		if err != nil {
			return nil, &ExitError{err, 2}
		}
		for range n {
			list = append(list, datadir.Node{Name: d.Name, Machine: d.Lasting})
		}
	}
	if count < 0 || count > machine.MaxCount {
		return nil, &ExitError{fmt.Errorf("number of nodes %d: want 1 to %d", count, machine.MaxCount), 2}
	}
	if count == 0 {
		count = len(list)
	}
	nodes := make([]datadir.Node, 0, count)
	numbers := map[string]int{}
	for i := range count {
		n := list[i%len(list)]
		kind := n.Name
		n.Name = fmt.Sprintf("%s-%d", kind, numbers[kind])
		numbers[kind]++
		nodes = append(nodes, n)
	}
	return nodes, nil
}

package datadir

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// socketPathLimit keeps a unix socket's path well under the kernel's 108 bytes.
const socketPathLimit = 100

// Dir is a data folder. The zero value is not usable; see Resolve.
type Dir struct{ root string }

// Resolve returns the data folder at path, or at ~/.tenon where path is empty. It touches nothing on disk.
func Resolve(path string) (Dir, error) {
	if path == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return Dir{}, fmt.Errorf("find the home folder for the default data folder (name one with --data): %w", err)
		}
		path = filepath.Join(home, ".tenon")
	}
	root, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, fmt.Errorf("resolve data folder %s: %w", path, err)
	}
	return Dir{root: root}, nil
}

// Root returns the folder's absolute path.
func (d Dir) Root() string { return d.root }

// Flag returns what commands about the cluster in this folder need: " --data ROOT"; "" for the default folder.
func (d Dir) Flag() string {
	if usual, err := Resolve(""); err == nil && usual == d {
		return ""
	}
	return " --data " + d.root
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (d Dir) Kubeconfig() string { return d.path("kubeconfig") }

// PKI returns the folder of certificates.
func (d Dir) PKI() string { return d.path("pki") }

// Credential returns the path of a component's kubeconfig.
func (d Dir) Credential(component string) string { return d.path("pki", component+".kubeconfig") }

// Pair returns the files of the certificate called name and of its key.
func (d Dir) Pair(name string) (cert, key string) {
	return d.path("pki", name+".crt"), d.path("pki", name+".key")
}

// Etcd returns the folder of the cluster's store.
func (d Dir) Etcd() string { return d.path("etcd") }

// Nodes returns the folder of the simulated machines' trees.
func (d Dir) Nodes() string { return d.path("nodes") }

// Log returns the path of a process's log.
func (d Dir) Log(process string) string { return d.path("log", process+".log") }

// SchedulerConfig returns the configuration that a replica of the scheduler is started with, where it has one. It is
// beside the credential that it names.
func (d Dir) SchedulerConfig(replica int) string {
	return d.path("pki", "scheduler-"+strconv.Itoa(replica)+".yaml")
}

// Journal returns the folder in which a replica of the scheduler records what it decides.
func (d Dir) Journal(replica int) string {
	return d.path("journal", "scheduler-"+strconv.Itoa(replica))
}

// Make creates the folder and those of its parts that processes expect. It returns *NotPrivate where one of them exists
// and another user owns it or may write it.
func (d Dir) Make() error {
	for _, p := range []string{d.root, d.PKI(), d.Etcd(), d.Nodes(), d.path("log")} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return fmt.Errorf("make data folder: %w", err)
		}
		if err := checkPrivate(p, os.Geteuid()); err != nil {
			return err
		}
	}
	return nil
}

// NotPrivate is the error of a folder that another user owns or may write, and so could fill with files to run.
type NotPrivate struct {
	Folder      string
	Owner, User int // user ids; User runs this process
	Mode        os.FileMode
}

func (e *NotPrivate) Error() string {
	return fmt.Sprintf("data folder %s is owned by user %d with mode %04o: it must be owned by user %d and not be "+
		"writable for group or others", e.Folder, e.Owner, e.Mode, e.User)
}

func checkPrivate(folder string, user int) error {
	info, err := os.Stat(folder)
	if err != nil {
		return fmt.Errorf("check data folder: %w", err)
	}
	owner, mode := int(info.Sys().(*syscall.Stat_t).Uid), info.Mode().Perm()
	if owner != user || mode&0o022 != 0 {
		return &NotPrivate{Folder: folder, Owner: owner, User: user, Mode: mode}
	}
	return nil
}

// Socket returns the path of a unix socket called name: in the folder, or, where that path would be too long for the
// kernel, in a private folder under the user's runtime directory.
func (d Dir) Socket(name string) (string, error) {
	if p := d.path(name); len(p) <= socketPathLimit {
		return p, nil
	}
	short := d.socketFolder()
	err := os.MkdirAll(short, 0o700)
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(short)
	}
	if err != nil {
		return "", fmt.Errorf("make socket folder: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("socket folder %s is open to other users (mode %v)", short, info.Mode().Perm())
	}
	return filepath.Join(short, name), nil
}

// Purge removes everything in the folder, and the folder itself. It refuses a folder that is not a data folder.
func (d Dir) Purge() error {
	entries, err := os.ReadDir(d.root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	if _, err := os.Stat(d.path("lock")); len(entries) > 0 && err != nil {
		return fmt.Errorf("%s is not a data folder of tenon (it has no lock file): nothing was removed", d.root)
	}
	for _, known := range []string{
		"etcd", "pki", "nodes", "log", "journal", "kubeconfig", "ports.json", "nodes.json", "etcd.sock",
		"etcd-peer.sock", "lock",
	} {
		if err := os.RemoveAll(d.path(known)); err != nil {
			return fmt.Errorf("purge data folder: %w", err)
		}
	}
	if err := os.RemoveAll(d.socketFolder()); err != nil {
		return fmt.Errorf("purge socket folder: %w", err)
	}
	// A folder that contains other files is kept.
	if err := os.Remove(d.root); err != nil && !errors.Is(err, os.ErrNotExist) {
		if left, readErr := os.ReadDir(d.root); readErr == nil && len(left) > 0 {
			return nil
		}
		return fmt.Errorf("purge data folder: %w", err)
	}
	return nil
}

// socketFolder is named after the data folder, so that two clusters never share it.
func (d Dir) socketFolder() string {
	sum := sha256.Sum256([]byte(d.root))
	base := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
	return filepath.Join(base, "tenon-"+strconv.Itoa(os.Getuid())+"-"+hex.EncodeToString(sum[:6]))
}

func (d Dir) path(parts ...string) string {
	return filepath.Join(append([]string{d.root}, parts...)...)
}

// WriteFile replaces a file in one step: a reader, or a start after a crash, sees the old text or the new one. A file
// has one writer at a time.
func WriteFile(path string, text []byte, mode os.FileMode) error {
	temporary := path + ".new"
	err := os.WriteFile(temporary, text, mode)
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.RemoveAll(temporary))
	}
	return nil
}

// Corrupt is the error of a file of the data folder that cannot be read as what it is.
type Corrupt struct {
	File string
	Err  error
}

func (c *Corrupt) Error() string { return fmt.Sprintf("%s is damaged: %v", c.File, c.Err) }

func (c *Corrupt) Unwrap() error { return c.Err }

// readJSON leaves v alone when the file is absent.
func (d Dir) readJSON(name string, v any) error {
	text, err := os.ReadFile(d.path(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read data folder: %w", err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return &Corrupt{File: d.path(name), Err: err}
	}
	return nil
}

func (d Dir) writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return WriteFile(d.path(name), append(text, '\n'), 0o600)
}

// Node is a simulated machine of the cluster.
type Node struct {
	Name string `json:"name"`
	// Machine is a machine spec without a count, such as epyc-2s@static.
	Machine string `json:"machine"`
}

// SavedNodes returns the machines of the last start, none where there was none.
func (d Dir) SavedNodes() ([]Node, error) {
	var nodes []Node
	if err := d.readJSON("nodes.json", &nodes); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if n.Name == "" || n.Machine == "" {
			return nil, &Corrupt{File: d.path("nodes.json"), Err: errors.New("a node without a name or a machine")}
		}
	}
	return nodes, nil
}

// SaveNodes keeps the machines for the processes of this start and for the next one.
func (d Dir) SaveNodes(nodes []Node) error { return d.writeJSON("nodes.json", nodes) }

// Node returns the folder of a simulated machine's tree.
func (d Dir) Node(name string) string { return filepath.Join(d.Nodes(), name) }

package plane

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"github.com/coreos/go-semver/semver"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"google.golang.org/protobuf/proto"
)

// DataError is the error of a start on data that this program cannot use and does not change: another release wrote
// them.
type DataError struct{ Text string }

func (e *DataError) Error() string { return e.Text }

// droppedVersion is the version of Kubernetes' own PodGroups and Workloads that 1.36 stores and 1.37 cannot decode: a
// single such object would end each list of its kind with an error.
const droppedVersion = "scheduling.k8s.io/v1alpha2"

// database is what an earlier start left in etcd's database.
type database struct {
	etcd    string // the release of etcd whose format it has, such as 3.6.0; empty for a new one
	dropped int    // objects of droppedVersion
}

// check returns an error for data that this program cannot use, and otherwise what a start does to them; "" for
// nothing.
func (d database) check(dir string) (news string, err error) {
	if d.dropped > 0 {
		return "", &DataError{fmt.Sprintf("%s contains %d objects of %s, which Kubernetes 1.37 does not read: delete "+
			"PodGroups and Workloads with the tenon that created them", dir, d.dropped, droppedVersion)}
	}
	if d.etcd == "" {
		return "", nil
	}
	kept, err := semver.NewVersion(d.etcd)
	if err != nil {
		return "", &StoreError{Dir: dir, Err: fmt.Errorf("version of the data %q: %w", d.etcd, err)}
	}
	ours := semver.New(etcdversion.Version)
	from, to := fmt.Sprintf("%d.%d", kept.Major, kept.Minor), fmt.Sprintf("%d.%d", ours.Major, ours.Minor)
	switch kept.Patch, ours.Patch = 0, 0; kept.Compare(*ours) {
	case 1:
		return "", &DataError{fmt.Sprintf("%s is of etcd %s, which etcd %s of this program cannot read", dir, from, to)}
	case -1:
		return fmt.Sprintf("migrating %s from etcd %s to %s: earlier releases of tenon cannot use it afterwards", dir,
			from, to), nil
	}
	return "", nil
}

// readDatabase reads etcd's database once. On a damaged page etcd itself would panic in goroutines of its own, and end
// this process without a useful text.
func readDatabase(path string) (kept database, err error) {
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return database{}, nil // etcd makes a new one
	}
	// A damaged page may point beyond the mapped file.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("read database: %v", r)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true, Timeout: time.Second})
	if err != nil {
		return database{}, fmt.Errorf("open database: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	dropped := map[string]bool{} // by key: the last revision is of droppedVersion
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			if string(name) == "cluster" {
				kept.etcd = string(b.Get([]byte("clusterVersion")))
			}
			return b.ForEach(func(_, value []byte) error {
				if string(name) == "key" {
					noteDropped(value, dropped)
				}
				return nil
			})
		})
	})
	for _, last := range dropped {
		if last {
			kept.dropped++
		}
	}
	return kept, err
}

// noteDropped notes one revision of an object, in the order of revisions. A deletion is a revision without value.
func noteDropped(revision []byte, dropped map[string]bool) {
	if !bytes.Contains(revision, []byte("/registry/podgroups/")) &&
		!bytes.Contains(revision, []byte("/registry/workloads/")) {
		return
	}
	var object mvccpb.KeyValue
	if proto.Unmarshal(revision, &object) != nil {
		return // not an object: the store has other values too
	}
	head := object.Value[:min(len(object.Value), 64)] // the version stands before the object
	dropped[string(object.Key)] = bytes.Contains(head, []byte(droppedVersion))
}

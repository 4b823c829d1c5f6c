package plane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	etcdversion "go.etcd.io/etcd/api/v3/version"
	"google.golang.org/protobuf/proto"

	"github.com/tenon-project/tenon/internal/testkit"
)

func TestDamagedDatabaseIsFoundBeforeEtcdReadsIt(t *testing.T) {
	t.Parallel()
	const page = 4096
	for name, test := range map[string]struct {
		damage func(t *testing.T, path string)
		fine   bool
	}{
		"one that is whole": {damage: func(*testing.T, string) {}, fine: true},
		"one that is not there": {
			damage: func(t *testing.T, path string) { testkit.Check(t, os.Remove(path)) },
			fine:   true,
		},
		"one that is empty": {
			damage: func(t *testing.T, path string) { testkit.Check(t, os.Truncate(path, 0)) },
			fine:   true,
		},
		"one with a damaged head": {damage: func(t *testing.T, path string) { scribble(t, path, 0, 2*page) }},
		"one with damaged pages":  {damage: func(t *testing.T, path string) { scribble(t, path, 2*page, 40*page) }},
		"one that ends half way": {damage: func(t *testing.T, path string) {
			testkit.Check(t, os.Truncate(path, 3*page))
		}},
		"one that is something else": {damage: func(t *testing.T,
			path string,
		) {
			testkit.Check(t, os.WriteFile(path, []byte("text"), 0o600))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "db")
			fill(t, path)
			test.damage(t, path)
			if _, err := readDatabase(path); (err == nil) != test.fine {
				t.Errorf("readDatabase: %v, want fine: %v", err, test.fine)
			}
		})
	}
}

func TestDataOfAnotherReleaseAreMigratedWithWordsOrRefused(t *testing.T) {
	t.Parallel()
	object := func(version string) []byte {
		return append([]byte("k8s\x00\n"), []byte("\x20\x0a\x18"+version+"\x12\x08PodGroup")...)
	}
	const groups = "/registry/podgroups/default/"
	for name, test := range map[string]struct {
		etcd          string
		revisions     []*mvccpb.KeyValue
		news, refused string
	}{
		"a new store":   {},
		"our own":       {etcd: etcdversion.Version},
		"a later patch": {etcd: etcdversion.Version + "1"},
		"no version":    {etcd: "new", refused: "version of the data"},
		"an older etcd": {etcd: "3.6.0", news: "migrating DIR from etcd 3.6 to 3.7: earlier releases of tenon cannot"},
		"a newer etcd":  {etcd: "4.0.0", refused: "DIR is of etcd 4.0, which etcd 3.7 of this program cannot read"},
		"a PodGroup of 1.36": {
			etcd:      "3.6.0",
			revisions: []*mvccpb.KeyValue{{Key: []byte(groups + "a"), Value: object(droppedVersion)}},
			refused:   "DIR contains 1 objects of scheduling.k8s.io/v1alpha2, which Kubernetes 1.37 does not read",
		},
		"a PodGroup of 1.36 that was deleted": {
			revisions: []*mvccpb.KeyValue{
				{Key: []byte(groups + "a"), Value: object(droppedVersion)}, {Key: []byte(groups + "a")},
			},
		},
		"a PodGroup of 1.37, with a manager of 1.36": {
			revisions: []*mvccpb.KeyValue{{
				Key:   []byte(groups + "a"),
				Value: append(append(object("scheduling.k8s.io/v1beta1"), make([]byte, 64)...), droppedVersion...),
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "db")
			writeDatabase(t, path, test.etcd, test.revisions)
			kept, err := readDatabase(path)
			testkit.Check(t, err)
			news, err := kept.check("DIR")
			if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("refused with %v, want %q", err, test.refused)
			}
			if (news != "") != (test.news != "") || !strings.HasPrefix(news, test.news) {
				t.Errorf("says %q, want %q", news, test.news)
			}
		})
	}
}

// writeDatabase writes a database as etcd has it: its version, and revisions of objects in their order.
func writeDatabase(t *testing.T, path, version string, revisions []*mvccpb.KeyValue) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	testkit.Check(t, err)
	testkit.Check(t, db.Update(func(tx *bolt.Tx) error {
		cluster, err := tx.CreateBucket([]byte("cluster"))
		if err == nil && version != "" {
			err = cluster.Put([]byte("clusterVersion"), []byte(version))
		}
		if err != nil {
			return err
		}
		keys, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		for i, r := range revisions {
			value, err := proto.Marshal(r)
			if err != nil {
				return err
			}
			if err := keys.Put([]byte{0, byte(i)}, value); err != nil {
				return err
			}
		}
		return nil
	}))
	testkit.Check(t, db.Close())
}

func fill(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	testkit.Check(t, err)
	testkit.Check(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("key"))
		if err != nil {
			return err
		}
		for i := range 2000 {
			if err := b.Put([]byte{byte(i >> 8), byte(i)}, make([]byte, 100)); err != nil {
				return err
			}
		}
		return nil
	}))
	testkit.Check(t, db.Close())
}

func scribble(t *testing.T, path string, from, to int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	testkit.Check(t, err)
	garbage := make([]byte, to-from)
	for i := range garbage {
		garbage[i] = byte(i*7 + 3)
	}
	_, err = f.WriteAt(garbage, from)
	testkit.Check(t, err)
	testkit.Check(t, f.Close())
}

package plane

import (
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

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
			if err := checkDatabase(path); (err == nil) != test.fine {
				t.Errorf("checkDatabase: %v, want fine: %v", err, test.fine)
			}
		})
	}
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

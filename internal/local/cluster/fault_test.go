package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/tenon-project/tenon/internal/local/datadir"
	"github.com/tenon-project/tenon/internal/local/pki"
	"github.com/tenon-project/tenon/internal/local/plane"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestErrorsThatPeopleMeetSayWhatToDo(t *testing.T) {
	t.Parallel()
	dir, err := datadir.Resolve("/data")
	testkit.Check(t, err)
	full := &fs.PathError{Op: "write", Path: "/data/x", Err: syscall.ENOSPC}
	for name, test := range map[string]struct {
		err  error
		want []string
	}{
		"a second start names the process": {
			&datadir.InUse{Dir: "/data", Owner: datadir.Owner{PID: 4711}},
			[]string{"already runs on /data", "process 4711", "tenon down --data /data"},
		},
		"a folder that another user owns": {
			&datadir.NotPrivate{Folder: "/data", Owner: 1001, User: 1000, Mode: 0o755},
			[]string{
				"/data is owned by user 1001 with mode 0755", "must be owned by user 1000",
				"another folder with --data",
			},
		},
		"a folder that others may write": {
			&datadir.NotPrivate{Folder: "/data/pki", Owner: 1000, User: 1000, Mode: 0o777},
			[]string{"/data/pki is owned by user 1000 with mode 0777", "chmod go-w /data/pki"},
		},
		"a full disk met by a file": {
			fmt.Errorf("write ports: %w", full),
			[]string{"disk that holds /data is full", "free some space"},
		},
		"a full disk met by the store": {
			&plane.StoreError{Dir: "/data/etcd", Err: full},
			[]string{"disk that holds /data is full"},
		},
		"a quota that is used up": {
			fmt.Errorf("x: %w", syscall.EDQUOT),
			[]string{"disk that holds /data is full"},
		},
		"a folder of another user": {
			&fs.PathError{Op: "mkdir", Path: "/data", Err: syscall.EACCES},
			[]string{"/data cannot be written", "--data"},
		},
		"a read-only disk": {
			&fs.PathError{Op: "mkdir", Path: "/data", Err: syscall.EROFS},
			[]string{"/data cannot be written"},
		},
		"a file in the place of the folder": {
			&fs.PathError{Op: "mkdir", Path: "/data", Err: syscall.ENOTDIR},
			[]string{"/data is not a folder"},
		},
		"a damaged file": {
			&datadir.Corrupt{File: "/data/ports.json", Err: errors.New("x")},
			[]string{"/data/ports.json is damaged", "remove the file"},
		},
		"a damaged authority": {
			&pki.Broken{File: "/data/pki/ca.crt", Err: errors.New("x")},
			[]string{"certificates are damaged", "/data/pki/ca.crt", "remove /data/pki"},
		},
		"a damaged store": {
			&plane.StoreError{Dir: "/data/etcd", Err: errors.New("x")},
			[]string{"store is damaged", "tenon down --purge --data /data"},
		},
		"a store of another release": {
			&plane.DataError{Text: "/data/etcd is of etcd 3.8"},
			[]string{"/data/etcd is of etcd 3.8", "another folder with --data", "tenon down --purge --data /data"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Explain(fmt.Errorf("start: %w", test.err), dir)
			var fault *Fault
			if !errors.As(got, &fault) {
				t.Fatalf("Explain(%v) is not a Fault", test.err)
			}
			for _, part := range test.want {
				if !strings.Contains(got.Error(), part) {
					t.Errorf("text %q does not say %q", got, part)
				}
			}
			if !errors.Is(got, test.err) {
				t.Errorf("the cause %v is lost", test.err)
			}
		})
	}
}

func TestOtherErrorsAreNotChanged(t *testing.T) {
	t.Parallel()
	err := errors.New("something else")
	if got := Explain(err, datadir.Dir{}); got != err { //nolint:errorlint // identity is what is promised
		t.Errorf("got %v, want the error itself", got)
	}
	if got := Explain(nil, datadir.Dir{}); got != nil {
		t.Errorf("got %v, want nil", got)
	}
}

package web_test

import (
	"compress/gzip"
	"io/fs"
	"testing"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/web"
)

// mostBytes bounds what a browser loads of the console, compressed as proxies compress it.
const mostBytes = 80_000

type counter int

func (c *counter) Write(text []byte) (int, error) {
	*c += counter(len(text))
	return len(text), nil
}

func TestThePagesAreSmall(t *testing.T) {
	t.Parallel()
	var size counter
	files := 0
	testkit.Check(t, fs.WalkDir(web.Files(), ".", func(path string, file fs.DirEntry, err error) error {
		if err != nil || file.IsDir() {
			return err
		}
		text, err := fs.ReadFile(web.Files(), path)
		if err != nil {
			return err
		}
		files++
		compressed := gzip.NewWriter(&size)
		if _, err := compressed.Write(text); err != nil {
			return err
		}
		return compressed.Close()
	}))
	if files < 3 || size > mostBytes {
		t.Errorf("%d files are %d bytes compressed, want 3 or more of at most %d", files, size, mostBytes)
	}
}

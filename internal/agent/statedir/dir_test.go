package statedir_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/statedir"
	"github.com/tenon-project/tenon/internal/testkit"
)

func TestFilesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	dir := statedir.Of(host.Root{Dir: t.TempDir()})
	if text, err := dir.Read("a.json"); text != "" || err != nil {
		t.Errorf("a missing file is %q, %v", text, err)
	}
	testkit.Check(t, errors.Join(dir.Remove("a.json"), dir.Write("a.json", "1"), dir.Write("a.json", "2")))
	old := time.Now().Add(-time.Hour)
	testkit.Check(t, os.Chtimes(dir.Path("a.json"), old, old))
	testkit.Check(t, dir.Write("a.json", "2"))
	if s, err := os.Stat(dir.Path("a.json")); err != nil || time.Since(s.ModTime()) < time.Minute {
		t.Errorf("an equal text was written again (%v)", err)
	}
	if text, err := dir.Read("a.json"); text != "2" || err != nil {
		t.Errorf("read %q, %v, want 2", text, err)
	}
	if err := dir.Write("a.json/b", "3"); err == nil {
		t.Error("a file below a file was written")
	}
	testkit.Check(t, dir.Remove("a.json"))
	if text, err := dir.Read("a.json"); text != "" || err != nil {
		t.Errorf("a removed file is %q, %v", text, err)
	}
}

func TestOneAgentHoldsTheLock(t *testing.T) {
	t.Parallel()
	dir := statedir.Of(host.Root{Dir: t.TempDir()})
	first, err := dir.Lock(time.Now())
	testkit.Check(t, err)
	if _, err := dir.Lock(time.Now()); !errors.Is(err, statedir.ErrSecondAgent) {
		t.Errorf("a second lock: %v, want %v", err, statedir.ErrSecondAgent)
	}
	if first.Unclean || first.Refused() != 1 || first.Refused() != 0 {
		t.Errorf("the first agent: %+v, want no unclean end and one refusal, counted once", first)
	}
	first.Release() // it was not stopped
	second, err := dir.Lock(time.Now())
	testkit.Check(t, err)
	defer second.Release()
	if !second.Unclean || second.Ends != 1 {
		t.Errorf("after an agent that was killed: %+v, want one unclean end", second)
	}
}

package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

func drop(tb testing.TB, files map[string]string) host.Root {
	tb.Helper()
	root := host.Root{Dir: tb.TempDir()}
	for name, text := range files {
		path := root.Path(name)
		testkit.Check(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.Check(tb, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestDropFiles(t *testing.T) {
	t.Parallel()
	const ours, theirs = "var/run/tenon/device-infos/", "var/run/koordlet/xpu-device-infos/"
	root := drop(t, map[string]string{
		ours + "b.json": `[{"uuid":"b","type":"dpu","minor":"3","resources":{"example.com/dpu":"1"},
			"topology":{"nodeID":"1","p2pLinks":[{"peerMinor":"1,2","type":"HCCS"}]},
			"status":{"healthy":false,"errCode":"79","errMessage":"lost"}}]`,
		ours + "a.json":  `[{"uuid":"a","vendor":"v","model":"m"}]`,
		ours + "a2.json": `[{"uuid":"a"},{"uuid":"c"},{"vendor":"none"}]`,
		ours + "long.json": `[{"uuid":"` + strings.Repeat("x", 254) + `"},{"uuid":"x","type":"` +
			strings.Repeat("y", 64) + `"}]`,
		ours + "bad.json":   `{"uuid":"x"}`,
		ours + "worse.json": `[{"uuid":`,
		ours + "empty.json": ``,
		ours + "none.json":  `[]`,
		ours + "note.txt":   `no`,
		theirs + "x.json":   `[{"uuid":"d"}]`,
	})
	found, err := host.ReadDropped(root)
	var names []string
	for _, d := range found {
		names = append(names, d.Type+" "+d.UUID)
	}
	if got := strings.Join(names, ", "); got != "gpu a, gpu c, dpu b, gpu d" {
		t.Errorf("got %s", got)
	}
	if b := found[2]; b.Minor != "3" || b.Topology.NodeID != "1" || len(b.Topology.P2PLinks) != 1 || b.Status.Healthy ||
		b.Status.ErrCode != "79" || b.Resources["example.com/dpu"] != "1" || found[0].Status != nil {
		t.Errorf("got %+v", b)
	}
	for _, want := range []string{
		`a2.json: [0].uuid: gpu "a" is in var/run/tenon/device-infos/a.json already`,
		"long.json: [0]: \"xxx", "long.json: [1]: \"x\" of type \"yyyy", "want at most 253 and 63 bytes",
		"a2.json: [2].uuid: must not be empty", "bad.json: want a JSON array", "worse.json: want a JSON array",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to say %s", err, want)
		}
	}
	if found, err = host.ReadDropped(drop(t, nil)); len(found) != 0 || err != nil {
		t.Errorf("a machine without drop files has %v, %v", found, err)
	}
}

// On most distributions /var/run is a link to /run.
func TestDropFilesBelowALink(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/run", "../run"} {
		root := drop(t, map[string]string{"run/tenon/device-infos/f.json": `[{"uuid":"a"}]`, "var/x": ""})
		testkit.Check(t, os.Symlink(target, root.Path("var/run")))
		if found, err := host.ReadDropped(root); len(found) != 1 || err != nil {
			t.Errorf("%s: got %+v, %v, want one device", target, found, err)
		}
	}
}

func FuzzDropped(f *testing.F) {
	f.Add(`[{"uuid":"a","minor":"0","resources":{"gpu-core":"100"},"topology":{"nodeID":"0"},"status":{}}]`)
	f.Add(`[{"uuid":"a"},{"uuid":"a"},{}]`)
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, text string) {
		found, err := host.ReadDropped(drop(t, map[string]string{"var/run/tenon/device-infos/f.json": text}))
		seen := map[string]bool{}
		for _, d := range found {
			if d.UUID == "" || d.Type == "" || seen[d.Type+"/"+d.UUID] {
				t.Errorf("%q: got %+v, %v", text, found, err)
			}
			seen[d.Type+"/"+d.UUID] = true
		}
	})
}

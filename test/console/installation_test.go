package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// installation answers as a cluster does in which Tenon is installed: a local one has no pods of its components. An
// agent is of another version, and pods were evicted.
func installation() map[string]any {
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	component := func(name string, ready int, leader string, pods map[string]int) map[string]any {
		c := map[string]any{"name": name, "desired": 3, "ready": ready, "versions": []string{}, "pods": pods}
		if leader != "" {
			c["leader"], c["leaderSince"] = leader, ago(3*time.Hour)
		}
		return c
	}
	evicted := func(name, evictor, why string, old time.Duration) map[string]any {
		return map[string]any{"pod": "shop/" + name, "by": evictor, "why": why, "time": ago(old)}
	}
	none := map[string]any{"items": []any{}}
	return map[string]any{
		"pending": none, "gangs": none, "gpus": none, "quotas": none, "nodes": fleet(0),
		"status": map[string]any{
			"subject": "Tenon in namespace tenon-system", "schedulerVersion": "v0.2.0",
			"findings": []any{
				map[string]any{"check": "tenon-agent", "status": "fail", "found": "2 of 3 ready"},
				map[string]any{"check": "diagnostics", "status": "ok", "found": "the scheduler that leads answers"},
			},
			"components": []any{
				component("tenon-scheduler", 3, "tenon-scheduler-a", map[string]int{"v0.2.0": 3}),
				component("tenon-agent", 2, "", map[string]int{"v0.2.0": 2, "v0.1.0": 1}),
			},
			"reports": []any{map[string]any{
				"kind": "topology", "nodes": 2, "of": 3, "oldest": ago(4 * time.Hour), "oldestNode": "node-0001",
			}},
		},
		"evicted": map[string]any{"items": []any{
			evicted("moved-b", "default/LowNodeUtilization", "node n0 is used too much", 30*time.Minute),
			evicted("moved-a", "default/LowNodeUtilization", "node n0 is used too much", 40*time.Minute),
			evicted("preempted", "preemption", "Preempted by pod shop/high on node n1", 45*time.Minute),
			evicted("by-a-user", "user", "", 50*time.Minute),
			evicted("long-ago", "default/PodLifeTime", "it is too old", 61*time.Minute),
		}},
	}
}

func TestOverviewOfAnInstallation(t *testing.T) {
	address := serve(t, func(int) map[string]any { return installation() })
	b := newBrowser(t, address)
	b.size(1280, 900)
	b.do("open the overview", chromedp.Navigate(address+"/"))
	b.shows("1 of 2 checks are not ok", "2 of 3 ready", "tenon-agent", "2/3", "nodes with a topology",
		"4 evictions within the last hour, by PodMigrationJobs and Events",
		"a job of a user", "node n0 is used too much", "preemption", "Preempted by pod shop/high")
	b.picture("overview-installed")
	b.checkAccess()
	b.checkKeyboard()
	b.checkTables()
	b.shows("shop/moved-b", "shop/by-a-user", "shop/preempted")
	if shown := run(b, "read", chromedp.Evaluate[bool]("document.body.innerText.includes('long-ago')")); shown {
		t.Error("an eviction before the last hour is shown")
	}
	b.size(360, 800)
	b.size(1280, 900)
	b.open("/system")
	b.shows("1 of 2 checks are not ok", "tenon-scheduler-a leads since 3 h 0 min",
		"oldest report 4 h 0 min ago, of node-0001",
		"1 of 6 pods run another version than the scheduler that leads (v0.2.0)", "differs from the scheduler",
		"v0.1.0")
	b.checkAccess()
	b.checkTables()
	b.checkFaults()
}

// Who may not list evictions sees the rest of the overview, and why that is missing.
func TestOverviewWithoutEvictions(t *testing.T) {
	address := serve(t, func(int) map[string]any {
		answers := installation()
		answers["evicted"] = noAnswer("list on podmigrationjobs is missing")
		return answers
	})
	b := newBrowser(t, address)
	b.do("open the overview", chromedp.Navigate(address+"/"))
	b.shows("list on podmigrationjobs is missing", "Bound in the last hour", "tenon-agent")
	b.checkAccess()
	b.checkFaults()
}

// Each choice of the fleet has an address, a legend, a table and a command. Owners have colours, letters and names.
func TestChoicesOfTheFleet(t *testing.T) {
	address := serve(t, func(int) map[string]any {
		answers := installation()
		answers["nodes"] = map[string]any{"items": fleet(0)["items"].([]map[string]any)[:24]}
		none := map[string]any{"requested": "0", "usedPercent": -1}
		answers["use"] = map[string]any{"items": []any{
			map[string]any{"node": "node-0001", "cpu": map[string]any{"usedPercent": 61}, "memory": none},
			map[string]any{"node": "node-0002", "cpu": map[string]any{"usedPercent": -1}, "memory": none},
		}}
		return answers
	})
	b := newBrowser(t, address)
	for choice, texts := range map[string][]string{
		"load":          {"Load: CPU that is used", "61%", "–", "not known", "tenon top nodes"},
		"fragmentation": {"Fragmentation of free CPUs", "How much smaller the largest pod", "50%", "tenon top -o wide"},
		"qos":           {"QoS class with most CPUs", "LS", "tenon top"},
		"quota":         {"Quota with most CPU requests", "team-3", "2 others", "nodes: ", "tenon top -o wide"},
		"gang":          {"Gang with most members", "ml/train-1", "tenon top -o wide"},
		"stranded":      {"GPUs that no pod can use", "tenon top gpu"},
	} {
		b.size(1280, 900)
		b.do("open "+choice, chromedp.Navigate(address+"/fleet?by="+choice))
		b.shows("24 of 24 nodes")
		b.shows(texts...)
		b.picture("fleet-of-" + choice)
		b.checkAccess()
		b.checkTables()
		b.shows(texts[0])
		for _, width := range []int64{360, 3840} {
			b.size(width, 900)
		}
	}
	b.size(1280, 900)
	b.do("open quota", chromedp.Navigate(address+"/fleet?by=quota"))
	b.shows("team-3", "node-0023")
	b.checkKeyboard()
	b.click("team-3")
	b.shows("team-3: part of the node", "0%", "100%")
	if at := b.at(); !strings.HasSuffix(at, "/fleet?by=quota&of=team-3") {
		t.Errorf("the address is %s", at)
	}
	b.checkAccess()
	b.picture("fleet-team")
	const choose = `(() => { const s = document.querySelector("select"); s.value = "gang";
		s.dispatchEvent(new Event("change", {bubbles: true})) })()`
	b.do("choose gangs", chromedp.Evaluate[chromedp.Void](choose))
	b.shows("Gang with most members")
	if at := b.at(); !strings.HasSuffix(at, "/fleet?by=gang") {
		t.Errorf("the address is %s", at)
	}
	b.checkFaults()
}

// mostDrawn is how many rows of a table the page has at most, whatever it shows of them.
const mostDrawn = 200

// checkDownload saves what the page System shows, and compares the file with the tables of the page.
func (b *browser) checkDownload() {
	b.t.Helper()
	folder := b.t.TempDir()
	b.do("allow downloads", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
			Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: folder,
		})
		return err
	}))
	b.open("/system?table=checks+configuration+gates+endpoints")
	b.shows("Setting", "Path", "Check")
	// Both in one step, so that no answer of the server comes between.
	tables := run(b, "save and read", chromedp.Evaluate[map[string][][]string](`(() => {
		[...document.querySelectorAll("button")].find((b) => b.innerText.includes("Download")).click();
		return Object.fromEntries([...document.querySelectorAll("main table")].map((t) => [
			t.querySelector("th").textContent,
			[...t.querySelectorAll("tbody tr:not(.room)")].map((r) => [...r.cells].map((c) => c.textContent)),
		]));
	})()`))
	var saved struct {
		Status struct {
			Topic  string
			Read   time.Time
			Answer struct {
				Findings  []struct{ Check, Status, Found, Where, Why, Remedy string }
				Endpoints map[string][]string
			}
		}
		Configuration struct {
			Answer struct {
				Settings []struct{ Field, Value, Origin string }
				Gates    []struct{ Name, Stage, Origin string }
			}
		}
	}
	text := b.downloaded(filepath.Join(folder, "tenon-system-*.json"))
	if err := json.Unmarshal(text, &saved); err != nil {
		b.t.Fatalf("read the download: %v\n%s", err, text)
	}
	want := map[string][][]string{}
	for _, f := range saved.Status.Answer.Findings {
		want["Check"] = append(want["Check"], []string{f.Check, f.Status, f.Found, f.Where, f.Why, f.Remedy})
	}
	for _, s := range saved.Configuration.Answer.Settings {
		want["Setting"] = append(want["Setting"], []string{s.Field, s.Value, s.Origin})
	}
	for method, paths := range saved.Status.Answer.Endpoints {
		for _, path := range paths {
			want["Path"] = append(want["Path"], []string{path, method})
		}
	}
	for name, rows := range want {
		got := slices.Clone(tables[name])
		for _, all := range [][][]string{rows, got} {
			slices.SortFunc(all, slices.Compare)
		}
		if len(rows) > mostDrawn { // the page has a row where it shows one
			rows = slices.DeleteFunc(rows, func(row []string) bool {
				return !slices.ContainsFunc(got, func(r []string) bool { return slices.Equal(r, row) })
			})
		}
		if len(got) == 0 || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", rows) {
			b.t.Errorf("%s: the page shows\n%q\nthe file has\n%q", name, got, rows)
		}
	}
	gates := saved.Configuration.Answer.Gates
	if len(want) != 3 || len(gates) == 0 || len(gates) != len(tables["Feature gate"]) ||
		saved.Status.Topic != "status" || time.Since(saved.Status.Read).Abs() > 10*patience {
		b.t.Errorf("the file has %d gates, topic %q, read at %v; the page %d gates", len(gates), saved.Status.Topic,
			saved.Status.Read, len(tables["Feature gate"]))
	}
}

// downloaded waits for a file whose name matches, and returns it.
func (b *browser) downloaded(pattern string) []byte {
	b.t.Helper()
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-ticks.C {
		names, err := filepath.Glob(pattern)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(names) == 0 {
			continue
		}
		text, err := os.ReadFile(names[0])
		if err != nil {
			b.t.Fatal(err)
		}
		if json.Valid(text) {
			return text
		}
	}
	b.t.Fatalf("nothing was saved as %s", pattern)
	return nil
}

package archtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreign are the metrics of others that rules and dashboards read.
var foreign = []string{
	"up", "leader_election_master_status", "apiserver_admission_webhook_rejection_count",
	"apiserver_admission_webhook_fail_open_count", "scheduler_scheduling_attempt_duration_seconds",
}

// ofTargets are labels that scraping adds.
var ofTargets = []string{"job", "instance", "namespace", "pod", "node", "le"}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(tenon_[a-z_]+)` \\| ([a-z]+) \\| (.*?) \\|")
	selector  = regexp.MustCompile(`\b((?:tenon|scheduler|apiserver|leader_election)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
)

// registered are the labels of each series that the page of metrics knows. A metric of which the page has no labels may
// have some that its source does not spell out: nil.
func registered(page string) map[string][]string {
	series := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		var labels []string
		if row[3] != "–" {
			labels = strings.Split(strings.Trim(row[3], "`"), "`, `")
		}
		names := []string{row[1]}
		if row[2] == "histogram" {
			names = []string{row[1] + "_bucket", row[1] + "_sum", row[1] + "_count"}
		}
		for _, name := range names {
			series[name] = labels
		}
	}
	return series
}

// unknown lists what an expression names and no component serves.
func unknown(expression string, series map[string][]string) []string {
	var bad []string
	for _, m := range selector.FindAllStringSubmatch(expression, -1) {
		labels, ours := series[m[1]]
		if !ours && !slices.Contains(foreign, strings.TrimSuffix(m[1], "_bucket")) {
			bad = append(bad, m[1])
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if labels != nil && !slices.Contains(labels, l[1]) && !slices.Contains(ofTargets, l[1]) {
				bad = append(bad, m[1]+"{"+l[1]+"}")
			}
		}
	}
	return bad
}

func TestRulesAndDashboardsNameMetricsThatExist(t *testing.T) {
	page := read(t, "docs/reference/metrics.md")
	series := registered(page)
	if len(series) < 30 {
		t.Fatalf("%d series on the page of metrics: its form has changed", len(series))
	}
	rules := regexp.MustCompile(`(?s)\n    expr: (.*?)\n    [a-z]+:`).FindAllStringSubmatch(
		read(t, "deploy/chart/files/rules/tenon.yaml"), -1)
	var expressions []string
	for _, r := range rules {
		expressions = append(expressions, r[1])
	}
	for _, name := range []string{"scheduling", "nodes-and-devices"} {
		expressions = append(expressions, ofDashboard(t, "deploy/chart/files/dashboards/"+name+".json")...)
	}
	if len(expressions) < 30 {
		t.Fatalf("%d expressions found", len(expressions))
	}
	for _, e := range expressions {
		if !selector.MatchString(e) {
			t.Errorf("no metric in %s", e)
		}
		for _, name := range unknown(e, series) {
			t.Errorf("%s is not on the page of metrics: %s", name, e)
		}
	}
	// The test's own test: a check that cannot fail proves nothing.
	got := unknown(`tenon_gone > 0 and tenon_place_seconds and tenon_unschedulable_pods{quota="a",code!="b"}`, series)
	want := []string{"tenon_gone", "tenon_place_seconds", "tenon_unschedulable_pods{quota}"}
	if !slices.Equal(got, want) {
		t.Errorf("unknown = %q, want %q", got, want)
	}
}

// ofDashboard returns the expressions of all panels.
func ofDashboard(t *testing.T, path string) []string {
	t.Helper()
	var d struct {
		UID    string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var out []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
		if d.UID == "" || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("%s: panel %q shows nothing, or the dashboard has no uid", path, p.Title)
		}
	}
	return out
}

func TestEveryAlertHasARunbookAndATest(t *testing.T) {
	rules := read(t, "deploy/chart/files/rules/tenon.yaml")
	tests := read(t, "hack/tools/promtool/tenon_test.yaml")
	index := read(t, "docs/runbook/README.md")
	alerts := regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllStringSubmatch(rules, -1)
	if len(alerts) < 9 {
		t.Fatalf("%d alerts", len(alerts))
	}
	const url = "https://github.com/tenon-project/tenon/blob/main/docs/runbook/"
	for _, a := range alerts {
		alert := a[1]
		if strings.Count(rules, "runbook_url: "+url+alert+".md\n") != 1 {
			t.Errorf("%s names no runbook, or another one's", alert)
		}
		if !strings.Contains(index, "["+alert+"]("+alert+".md)") {
			t.Errorf("%s is not in docs/runbook/README.md", alert)
		}
		runbook := read(t, "docs/runbook/"+alert+".md")
		for _, part := range []string{"# " + alert + "\n", "**Means.**", "**Look at**", "**Do**"} {
			if !strings.Contains(runbook, part) {
				t.Errorf("the runbook of %s has no %q", alert, part)
			}
		}
		expectation := "    alertname: " + alert + "\n    exp_alerts:"
		if !strings.Contains(tests, expectation+"\n") || !strings.Contains(tests, expectation+" []\n") {
			t.Errorf("no test in which %s fires, or none in which it does not", alert)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

package console

import (
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// largePages are the pages of the large cluster, with what each must show in English.
var largePages = []struct {
	name, path string
	texts      []string
}{
	{"overview", "/", []string{"Why 300 pods wait", "11 NotReady", "4 of 12 gangs are bound"}},
	{"pending", "/pending?cause=InsufficientExclusiveCPU", []string{"300 pods wait", "No free whole core", markupName}},
	{"fleet", "/fleet", []string{"1000 of 1000 nodes"}},
	{"fleet-quota", "/fleet?by=quota&name=epyc", []string{"250 of 1000 nodes", "team-1"}},
	{"gpus", "/gpus", []string{"2000 GPUs", "Pods of 8 GPU that still fit"}},
	{"quota", "/quota", []string{"12 of 44 quotas are shown", "Unfold all", "600 cpu on both sides"}},
	{"gangs", "/gangs", []string{"ml/train-11", "0 of 64 bound"}},
	{"gang", "/gangs/ml/train-4", []string{"Must start together", "missing", "Expected start", "after ml/train-3"}},
	{"quota-one", "/quota/team-1", []string{"team-1"}},
	{"time", "/time", []string{"Preempted 350", "Decisions before", "why there", "on 1000 nodes"}},
	{"decisions", "/decisions", []string{"ml/web-000", "epyc-2s-0004"}},
	{"node", "/node/" + longName, []string{"256 CPU", "NUMA 7", "gpu 7", "NVLink"}},
	{"pod", "/pod/ml/" + longName, []string{"What the kernel has", "matches", "64 GiB"}},
	{"whatif", "/whatif?pod=ml/" + longName, []string{"Ask the scheduler"}},
	{"evictions", "/evictions?kept=BarePod", []string{"BarePod", "ml/etl-1", "LowNodeUtilization"}},
	{"reservations", "/reservations", []string{"reserve-29", "epyc-2s-0004"}},
	{"system", "/system", []string{"new pods can use 968 of 1000 nodes", "NominatedNodeNameForExpectation"}},
}

// TestEveryPageShowsALargeCluster in both languages, at three widths: nothing is wider than the window, and no text is
// cut without a title.
func TestEveryPageShowsALargeCluster(t *testing.T) {
	_, address := newFakeServer(t, generated(time.Now()))
	b := newBrowser(t, address)
	b.open("/")
	for _, language := range []string{"zh", "en"} {
		set := fmt.Sprintf("localStorage.setItem('tenon-language', %q)", language)
		b.do("choose "+language, chromedp.Evaluate[chromedp.Void](set))
		for _, page := range largePages {
			b.size(1440, 900)
			b.open(page.path)
			b.do("wait for the page", chromedp.Poll[chromedp.Void](
				`!document.querySelector(".skeleton") && !!document.querySelector("main h1")`))
			if language == "en" {
				b.shows(page.texts...)
				b.picture("large-" + page.name)
				b.checkAccess()
			}
			for _, width := range []int64{390, 1440, 2560} {
				b.size(width, 900)
				b.checkCutText()
				if width == 390 && language == "zh" {
					b.checkAccess()
				}
			}
			if text := run(b, "read", chromedp.Evaluate[string]("document.body.innerText")); regexp.MustCompile(
				`undefined|NaN|\d(Ki|Mi|Gi)\b`).MatchString(text) {
				t.Errorf("%s shows something raw or undefined:\n%s", page.path, text)
			}
		}
	}
	b.checkFaults()
}

// checkCutText fails for text that ends in dots and has no title.
func (b *browser) checkCutText() {
	b.t.Helper()
	const cut = `[...document.querySelectorAll("main *")].filter((e) => e.scrollWidth > e.clientWidth + 1 &&
		getComputedStyle(e).textOverflow === "ellipsis" && getComputedStyle(e).overflowX === "hidden" &&
		!e.closest("[title]")).map((e) => e.outerHTML.slice(0, 160))`
	for _, text := range run(b, "look for cut text", chromedp.Evaluate[[]string](cut)) {
		b.t.Errorf("%s: cut without a title: %s", b.at(), text)
	}
}

// TestPartsOfBarsAddUp to what the titles say.
func TestPartsOfBarsAddUp(t *testing.T) {
	_, address := newFakeServer(t, generated(time.Now()))
	b := newBrowser(t, address)
	b.size(1440, 900)
	b.open("/")
	b.shows("Why 300 pods wait", "Where the capacity is")
	for what, script := range map[string]string{
		"causes": `[...document.querySelectorAll(".causelist > a > .count")]
			.reduce((n, e) => n + Number(e.innerText), 0) === 300`,
		"CPUs by class": `(() => {
			const line = [...document.querySelectorAll(".line")].find((e) => e.innerText.startsWith("CPU"));
			const parts = [...line.querySelector(".parts").children]
				.map((e) => Number(/ ([\d.,]+) CPU/.exec(e.title)[1].replaceAll(",", "")));
			return Math.abs(parts.reduce((a, b) => a + b) - 128000) < 0.1;
		})()`,
	} {
		if !run(b, what, chromedp.Evaluate[bool](script)) {
			t.Errorf("the %s do not add up", what)
		}
	}
	b.open("/gangs/ml/train-4")
	b.shows("Must start together")
	const dots = `document.querySelectorAll(".gangtop .dots i").length`
	if n := run(b, "count dots", chromedp.Evaluate[int](dots)); n != 64 {
		t.Errorf("a gang of 64 has %d dots", n)
	}
	b.open("/quota")
	b.shows("on both sides")
	const sides = `["lender", "borrower"].map((side) => [...document.querySelectorAll("svg.lending ." + side)]
		.map((e) => /[−+]([\d.,]+)$/.exec(e.parentNode.querySelector("title").textContent)[1])
		.reduce((n, text) => n + Number(text.replaceAll(",", "")), 0))`
	if s := run(b, "add up", chromedp.Evaluate[[]float64](sides)); s[0] != s[1] || s[0] == 0 {
		t.Errorf("%g are lent and %g borrowed", s[0], s[1])
	}
	b.open("/fleet?by=quota")
	b.shows("1000 of 1000 nodes", "team-8")
	const colours = `(() => {
		const c = document.querySelector(".map canvas");
		const p = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, met = new Map();
		for (let i = 0; i < p.length; i += 4) {
			const colour = [p[i], p[i + 1], p[i + 2]].join();
			met.set(colour, (met.get(colour) ?? 0) + 1);
		}
		return [...met.values()].filter((n) => n > c.width * c.height / 100).length;
	})()`
	if n := run(b, "count colours", chromedp.Evaluate[int](colours)); n < 8 {
		t.Errorf("the map of seven quotas and the others has %d colours", n)
	}
	b.checkFaults()
}

// TestPaletteFindsNames: nodes by a part of their names, opened with the keyboard.
func TestPaletteFindsNames(t *testing.T) {
	_, address := newFakeServer(t, generated(time.Now()))
	b := newBrowser(t, address)
	b.open("/")
	b.shows("Why 300 pods wait")
	b.click("Search")
	b.do("wait for the palette", chromedp.Poll[chromedp.Void](`document.activeElement.matches("dialog[open] input")`))
	b.key("l40s-0003")
	b.shows("l40s-0003")
	b.checkAccess()
	b.do("wait for the entry", chromedp.Poll[chromedp.Void](
		`document.querySelector(".found[aria-selected=true]")?.innerText.startsWith("l40s-0003")`))
	b.picture("large-palette")
	b.key("\r")
	b.do("wait for the node", chromedp.Poll[chromedp.Void](`location.pathname === "/node/l40s-0003"`))
	b.key("g")
	b.key("q")
	b.do("wait for quotas", chromedp.Poll[chromedp.Void](`location.pathname === "/quota"`))
}

// TestAPodUnderThePointerFadesTheOthers, each CPU is drawn once, and a pod has as many cells as CPUs.
func TestAPodUnderThePointerFadesTheOthers(t *testing.T) {
	var cores []any
	for c := range 16 {
		state, pods := "free", []string{}
		if c < 4 {
			state, pods = "lsr", []string{"default/a"}
		}
		cpu := func(id int) any {
			return map[string]any{"cpu": id, "state": state, "pods": pods, "usedPercent": 25}
		}
		cores = append(cores, map[string]any{"core": c, "l3": c / 8, "cpus": []any{cpu(c), cpu(c + 16)}})
	}
	numa := map[string]any{
		"node": 0, "memoryAllocatable": "64Gi", "memoryFree": "32Gi", "distances": []int{10}, "sharedPool": "4-15",
		"beSharedPool": "", "free": 24, "cores": cores,
		"l3Use": []any{map[string]any{"l3": 0, "usedPercent": 25}},
	}
	manager := map[string]any{"policy": "none"}
	node := map[string]any{
		"node": "n", "cpus": 32, "cores": 16, "threadsPerCore": 2, "numaNodes": 1, "problems": []any{},
		"pods":    []any{map[string]any{"namespace": "default", "name": "a", "qos": "LSR", "cpuset": "0-3,16-19"}},
		"sockets": []any{map[string]any{"socket": 0, "numaNodes": []any{numa}}}, "policies": map[string]any{},
		"mode":    map[string]any{"mode": "Own", "from": map[string]any{"source": "assumed"}},
		"kubelet": map[string]any{"cpuManager": manager, "memoryManager": manager, "topologyManager": manager},
	}
	actual := map[string]any{"file": "cpuset.cpus", "want": "0-3,16-19", "got": "0-3", "state": "differs"}
	pod := map[string]any{
		"pod": "default/a", "state": "Bound", "data": map[string]any{"source": "s"},
		"actual": map[string]any{"groups": []any{map[string]any{"path": "/x", "values": []any{actual}}}},
	}
	_, address := newFakeServer(t, map[string]any{"node/n": node, "pod/default/a": pod})
	b := newBrowser(t, address)
	b.open("/node/n")
	b.shows("NUMA 0", "64 GiB", "differs: cpuset.cpus", "L3 0 · 25% busy")
	for what, script := range map[string]string{
		"each CPU is drawn once": `new Set([...document.querySelectorAll("[data-cpu]")].map((e) => e.dataset.cpu))
			.size === 32 && document.querySelectorAll("[data-cpu]").length === 32`,
		"a pod has its CPUs": `document.querySelectorAll("[data-cpu][data-pods='default/a']").length === 8`,
		"a quarter is busy": `[...document.querySelectorAll("[data-cpu] b")].filter((e) => e.offsetWidth * 4 ===
			e.parentNode.offsetWidth).length === 32`,
		"others fade": `(() => {
			document.querySelector("[data-cpu='17']").dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
			const opacity = (cpu) => {
				const cell = document.querySelector("[data-cpu='" + cpu + "']");
				cell.style.transition = "none";
				return Number(getComputedStyle(cell).opacity);
			};
			return opacity(9) <= 0.3 && opacity(1) === 1;
		})()`,
	} {
		if !run(b, what, chromedp.Evaluate[bool](script)) {
			t.Errorf("not so: %s", what)
		}
	}
	b.checkFaults()
}

// TestEachTextIsTranslated: the Chinese of a text has the same values as the English, and Chinese in it.
func TestEachTextIsTranslated(t *testing.T) {
	source, err := os.ReadFile("../../web/src/text.ts")
	if err != nil {
		t.Fatal(err)
	}
	pair := regexp.MustCompile(`(?s)\n  (\w+): \[\s*("(?:[^"\\]|\\.)*"),\s*("(?:[^"\\]|\\.)*"),?\s*\]`)
	value, han := regexp.MustCompile(`\{\d\}`), regexp.MustCompile(`\p{Han}`)
	same := map[string]bool{"pod": true, "pods": true, "cpus": true, "gpus": true, "usesOf": true}
	found := pair.FindAllStringSubmatch(string(source), -1)
	if len(found) < 300 {
		t.Fatalf("only %d texts were found", len(found))
	}
	count := func(text string) map[string]int {
		n := map[string]int{}
		for _, v := range value.FindAllString(text, -1) {
			n[v]++
		}
		return n
	}
	for _, f := range found {
		if fmt.Sprint(count(f[2])) != fmt.Sprint(count(f[3])) {
			t.Errorf("%s: the languages have different values: %s, %s", f[1], f[2], f[3])
		}
		if !same[f[1]] && !han.MatchString(f[3]) {
			t.Errorf("%s is not translated: %s", f[1], f[3])
		}
	}
}

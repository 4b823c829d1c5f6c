package console

import (
	"bufio"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const patience = 3 * time.Minute

// tenon is the program under test; TENON names it.
func tenon(t *testing.T) string {
	t.Helper()
	program := os.Getenv("TENON")
	if program == "" {
		t.Fatal("TENON is not set: use make test-console, which builds the program")
	}
	return program
}

// startCluster starts a local cluster with the demo and a journal, and returns its kubeconfig and the address of its
// console.
func startCluster(t *testing.T) (kubeconfig, address string) {
	t.Helper()
	data, err := os.MkdirTemp("", "tenon-") // pages show it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer os.RemoveAll(data)
		if out, err := exec.Command(tenon(t), "down", "--purge", "--data", data).CombinedOutput(); err != nil {
			t.Errorf("tenon down: %v\n%s", err, out)
		}
	})
	up := exec.Command(tenon(t), "up", "--detach", "--demo", "--journal", "--console", "127.0.0.1:0", "--data", data)
	out, err := up.CombinedOutput()
	if err != nil {
		t.Fatalf("tenon up: %v\n%s", err, out)
	}
	_, rest, found := strings.Cut(string(out), "  open   ")
	address, _, _ = strings.Cut(rest, " ")
	if !found {
		t.Fatalf("tenon up prints no address of a console:\n%s", out)
	}
	return filepath.Join(data, "kubeconfig"), address
}

// startConsole returns the address of a console, and a function that stops it.
func startConsole(t *testing.T, args ...string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, tenon(t), append([]string{"console"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // it ends by the signal
	})
	t.Cleanup(stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("tenon console: %v", err)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, "console ")), stop
}

// browser is a tab of Chromium.
type browser struct {
	t      *testing.T
	ctx    context.Context
	origin string

	mu       sync.Mutex // guards faults
	faults   []string
	mayFail  bool // the server is stopped
	pictures string
}

// tab is another tab of the same browser.
func (b *browser) tab() *browser {
	b.t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	b.t.Cleanup(cancel)
	other := &browser{t: b.t, ctx: ctx, origin: b.origin, pictures: b.pictures}
	other.follow()
	return other
}

// follow notes what the pages of a tab do.
func (b *browser) follow() {
	b.t.Helper()
	if err := chromedp.Listen(b.ctx, b.watch); err != nil {
		b.t.Fatalf("start chromium: %v", err)
	}
	b.do("watch", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, network.Enable, network.EnableParams{})
		if err == nil {
			_, err = cdp.Call(ctx, tab, log.Enable, cdp.Empty{})
		}
		if err == nil {
			_, err = cdp.Call(ctx, tab, runtime.Enable, cdp.Empty{})
		}
		return err
	}))
}

func newBrowser(t *testing.T, address string) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is missing: apt-get install -y chromium fonts-dejavu-core fonts-noto-cjk")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("lang", "en-US"),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("ignore-certificate-errors", true),
		chromedp.WSURLReadTimeout(patience))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, cancelAllocator := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancelAllocator)
	ctx, cancel := chromedp.NewContext(allocated)
	t.Cleanup(cancel)
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, ctx: ctx, origin: at.Scheme + "://" + at.Host, pictures: os.Getenv("PICTURES")}
	b.follow()
	return b
}

// watch notes what a page must not do.
func (b *browser) watch(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, b.origin+"/") && !strings.HasPrefix(e.Request.URL, "about:") {
			b.faults = append(b.faults, "request to "+e.Request.URL)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && !b.mayFail {
			b.faults = append(b.faults, "log: "+e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		thrown := e.ExceptionDetails
		b.faults = append(b.faults, fmt.Sprintf("exception: %s %s", thrown.Text, thrown.Exception.Description))
	case *runtime.EventConsoleAPICalled:
		if fmt.Sprint(e.Type) == "error" {
			b.faults = append(b.faults, fmt.Sprintf("console.error: %v", e.Args))
		}
	}
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, what, chromedp.Steps(actions...))
}

func run[T any](b *browser, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	answer, err := chromedp.Run(ctx, action)
	if err != nil {
		// More for the reader of the failure.
		text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
		b.t.Fatalf("%s: %v\nfaults: %q\npage: %s", what, err, b.faults, text)
	}
	return answer
}

// shows waits until the page contains a text.
func (b *browser) shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		script := fmt.Sprintf("document.body.innerText.toLowerCase().includes(%q.toLowerCase())", text)
		poll := chromedp.Poll[chromedp.Void](script, chromedp.WithPollingTimeout(patience))
		b.do("wait for "+text, func(ctx context.Context, t *chromedp.Target) (v chromedp.Void, err error) {
			for v, err = poll(ctx, t); err != nil && strings.Contains(err.Error(), anotherPage); {
				v, err = poll(ctx, t)
			}
			return v, err
		})
	}
}

// anotherPage is in the error of Chromium for a script of a page that another one has replaced.
const anotherPage = "Cannot find context with specified id"

// click follows the first link, or presses the first button, whose text contains text.
func (b *browser) click(text string) {
	b.t.Helper()
	b.shows(text)
	const find = "[...document.querySelectorAll('a, button')].find((e) => e.innerText.includes(%q)).click()"
	script := fmt.Sprintf(find, text)
	b.do("click "+text, chromedp.Poll[chromedp.Void]("("+script+", true)"))
}

// key presses a key of the page.
func (b *browser) key(name string) {
	b.t.Helper()
	b.do("press "+name, chromedp.KeyEvent(name))
}

// at returns the address of the page.
func (b *browser) at() string {
	b.t.Helper()
	return run(b, "read the address", chromedp.Location())
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do("open "+path, chromedp.Navigate(b.origin+path))
}

// size sets the window and fails if the page is wider.
func (b *browser) size(width, height int64) {
	b.t.Helper()
	b.do("resize", chromedp.EmulateViewport(width, height))
	if run(b, "measure", chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth")) {
		b.t.Errorf("%s is wider than a window of %d pixels", b.at(), width)
	}
}

// picture saves the window as far as there is something in it, light and dark, where PICTURES names a folder.
func (b *browser) picture(name string) {
	b.t.Helper()
	if b.pictures == "" {
		return
	}
	window := run(b, "measure", chromedp.Evaluate[struct{ Width, Height, Bottom int64 }](`({
		width: innerWidth, height: innerHeight,
		bottom: Math.ceil(document.querySelector("main").getBoundingClientRect().bottom + scrollY) - 16,
	})`))
	b.do("cut", chromedp.EmulateViewport(window.Width, min(window.Height, max(window.Bottom, 400))))
	defer b.do("restore", chromedp.EmulateViewport(window.Width, window.Height))
	for _, theme := range []string{"dark", "light"} {
		b.do(theme, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.documentElement.dataset.theme = %q", theme)))
		png := run(b, "picture", chromedp.CaptureScreenshot())
		name := strings.TrimSuffix(name+"-"+theme, "-light") + ".png"
		if err := os.WriteFile(filepath.Join(b.pictures, name), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// checkAccess runs axe on the page: rules for people who see little, or who use no mouse.
func (b *browser) checkAccess() {
	b.t.Helper()
	script, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatalf("axe-core is missing, use make test-console: %v", err)
	}
	const check = `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) =>
		v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200)).join(" | ")))`
	b.do("load axe", chromedp.Evaluate[chromedp.Void]("if (!window.axe) {"+string(script)+"\n} undefined"))
	for _, theme := range []string{"dark", "light"} {
		b.do(theme, chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.documentElement.dataset.theme = %q", theme)))
		for _, fault := range run(b, "axe", chromedp.Evaluate[[]string](check, chromedp.EvalAwaitPromise)) {
			b.t.Errorf("%s, %s: %s", b.at(), theme, fault)
		}
	}
}

// checkKeyboard follows the Tab key through all that can be clicked.
func (b *browser) checkKeyboard() {
	b.t.Helper()
	const all = `[...document.querySelectorAll("a[href], button, select, input, textarea, summary, [tabindex='0']")]` +
		`.filter((e) => !e.disabled)`
	const count = "document.activeElement.blur(), window.met = new Set(), " + all + ".length"
	want := run(b, "count", chromedp.Evaluate[int](count))
	for range want {
		b.do("tab", chromedp.KeyEvent(kb.Tab),
			chromedp.Evaluate[chromedp.Void]("met.add(document.activeElement), undefined"))
	}
	const missed = all + ".filter((e) => !met.has(e)).map((e) => e.outerHTML.slice(0, 100))"
	if left := run(b, "read what was met", chromedp.Evaluate[[]string](missed)); len(left) > 0 {
		b.t.Errorf("%s: %d of %d are not met with the keyboard: %q", b.at(), len(left), want, left)
	}
}

// checkTables shows the table of each picture of the page.
func (b *browser) checkTables() {
	b.t.Helper()
	const next = `[...document.querySelectorAll(".switch")].find((e) => e.innerText === "Table")`
	for run(b, "look for pictures", chromedp.Evaluate[bool]("!!"+next)) {
		before := run(b, "count", chromedp.Evaluate[int]("document.querySelectorAll('table').length"))
		b.do("show a table", chromedp.Evaluate[chromedp.Void](next+".click()"),
			chromedp.Poll[chromedp.Void](fmt.Sprintf("document.querySelectorAll('table').length > %d", before)))
	}
	b.checkAccess()
}

func (b *browser) checkFaults() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.t.Error(fault)
	}
}

// view is a page with what it must show of the demo.
type view struct {
	name, path string
	texts      []string
}

var views = []view{
	{"overview", "/", []string{
		"Why 6 pods wait", "Where the capacity is", "GPUs free", "Tenon of tenon up: all", "nodes with a topology",
		"New pods can use 5 of 5 nodes", "Gang members are missing", "What changed in the last hour",
		"0 evictions within the last hour",
	}},
	{"pending", "/pending?cause=InsufficientDevices&pod=default/pretrain", []string{
		"Verified fixes", "add 1 node like hgx-h100-0",
		"SMTAlignment", "InsufficientDevices", "lacks 5 more gpus", "default/finetune",
		"tenon explain pod/pretrain -n default",
	}},
	{"pod", "/pod/default/finetune", []string{
		"hgx-h100-0", "56-63,168-175", "What the kernel has", "cpuset.cpus", "matches",
	}},
	{"fleet", "/fleet", []string{"hgx-h100-0", "5 of 5 nodes", "Memory"}},
	{"fleet-quota", "/fleet?by=quota", []string{"team-c", "team-d", "tenon top -o wide", "Memory"}},
	{"fleet-gang", "/fleet?by=gang", []string{"default/train", "tenon top -o wide"}},
	{"fleet-fragmentation", "/fleet?by=fragmentation", []string{"How much smaller", "epyc-256-0", "0%"}},
	{"fleet-load", "/fleet?by=load", []string{"Load: CPU that is used", "arm64-1s-0", "%", "tenon top nodes"}},
	{"fleet-qos", "/fleet?by=qos", []string{"LSR", "QoS class with most CPUs"}},
	{"node", "/node/hgx-h100-0", []string{"NUMA 1", "default/finetune", "NVLink", "gpu 7"}},
	{"node-epyc", "/node/epyc-2s-0", []string{"NUMA 3", "default/packet-filter", "lsr", "% busy"}},
	{"node-table", "/node/epyc-2s-0?table=threads", []string{"CPU", "default/packet-filter"}},
	{"gpus", "/gpus", []string{"still fit", "0 of 8 GPUs are stranded", "GPUs by namespace", "NVLink"}},
	{"decisions", "/decisions?pod=default/team-d-0", []string{"ahead of", "No effect among", "ImageLocality"}},
	{"quota", "/quota?resource=cpu", []string{
		"team-c", "+15m", "What teams divides: 100m", "Who lends and who borrows",
	}},
	{"quota-one", "/quota/team-b?resource=cpu&round=1", []string{"After round 1 of 2", "9m left to divide"}},
	{"evictions", "/evictions?kept=BarePod", []string{
		"placed pods may not be moved", "BarePod", "default/cache", "Nothing counts against a limit",
		"tenon evictions",
	}},
	{"system", "/system", []string{
		"checks are ok", "the scheduler that leads answers", "valid for", "tenon status", "settings are not defaults",
		"NominatedNodeNameForExpectation", "/apis/v1/configuration", "Download what this page shows",
	}},
	{"whatif-drag", "/whatif", []string{"Put a pod on a node", "default/finetune"}},
	{"time", "/time", []string{"Bound", "Refused", "Decisions before", "why there", "on 5 nodes", "--fleet"}},
	{"gangs", "/gangs", []string{"default/train", "3 of 3 bound", "0 of 3 bound"}},
	{"gang", "/gangs/default/eval", []string{"GangNotReady", "default/eval-0", "missing"}},
	{"reservations", "/reservations", []string{
		"2 of 2 Reservations are available", "for-release", "3 / 8", "0 of 5 take CPUs over from a kubelet",
		"hgx-h100-0", "tenon topology",
	}},
}

// createReservations makes two in a demo, which has none, and a pod that uses one of them.
func createReservations(a *administrator) {
	a.t.Helper()
	asks := func(cpu, memory string) fields {
		return fields{"schedulerName": "tenon-scheduler", "containers": []fields{{
			"name": "c", "image": "busybox",
			"resources": fields{"requests": fields{"cpu": cpu, "memory": memory}},
		}}}
	}
	for name, spec := range map[string]fields{"for-release": asks("8", "16Gi"), "for-reports": asks("4", "8Gi")} {
		a.create("/apis/scheduling.koordinator.sh/v1alpha1/reservations", fields{
			"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation",
			"metadata": fields{"name": name},
			"spec": fields{
				"ttl": "24h", "allocateOnce": false, "template": fields{"spec": spec},
				"owners": []fields{{"labelSelector": fields{"matchLabels": fields{"app": name}}}},
			},
		})
	}
	a.create("/api/v1/namespaces/default/pods", fields{
		"metadata": fields{"name": "release-1", "labels": fields{"app": "for-release"}}, "spec": asks("3", "6Gi"),
	})
}

func TestEveryPageShowsTheDemo(t *testing.T) {
	kubeconfig, ofUp := startCluster(t)
	b := newBrowser(t, ofUp)
	b.do("open the console of tenon up", chromedp.Navigate(ofUp))
	b.shows("● live", "pods wait")

	address, stop := startConsole(t, "--kubeconfig", kubeconfig, "--listen", "127.0.0.1:0")
	b.mu.Lock()
	b.origin, _, _ = strings.Cut(address, "/#")
	b.mu.Unlock()
	b.do("open the console", chromedp.Navigate(address))
	b.shows("● live", "pods wait")
	if at := b.at(); strings.Contains(at, "#") {
		t.Errorf("the token is left in the address %s", at)
	}

	b.size(1440, 900)
	b.open("/")
	b.shows("pods wait")
	b.click("Search")
	b.do("wait for the palette", chromedp.Poll[chromedp.Void](`document.activeElement.matches("dialog[open] input")`))
	b.key("epyc")
	b.shows("epyc-256-0", "epyc-2s-1")
	b.picture("palette")

	for _, v := range views {
		if v.name == "reservations" {
			createReservations(newAdministrator(t, kubeconfig))
		}
		b.size(1440, 900)
		b.open(v.path)
		b.shows(append(v.texts, "● live")...)
		b.picture(v.name)
		b.checkAccess()
		b.checkKeyboard()
		b.checkTables()
		for _, width := range []int64{360, 768, 3840} {
			b.size(width, 900)
		}
		b.size(360, 800)
		b.picture(v.name + "-360")
	}
	b.size(1440, 900)

	// What a newcomer clicks.
	b.open("/")
	b.click("InsufficientDevices")
	b.shows("Insufficient gpu devices")
	b.click("Table")
	b.shows("Class", "Placement")
	if at := b.at(); !strings.Contains(at, "table=causes") {
		t.Errorf("the address %s does not say that a table is shown", at)
	}

	b.checkDownload()

	// A question from a pod that waits is asked at once; a link to it restores the answer.
	b.open("/pending?pod=default/pretrain")
	b.click("one more node like hgx-h100-0")
	b.shows("would be placed", "hgx-h100-0-whatif-1", "0,1,2,3,4,5,6,7",
		"tenon whatif pod/default/pretrain --add '1 x like node/hgx-h100-0'")
	b.picture("whatif")
	b.checkAccess()
	b.size(360, 800)
	b.picture("whatif-360")
	b.size(1440, 900)
	b.open("/whatif?pod=default/cannot-fit")
	b.click("Add a pod")
	b.click("Ask the scheduler")
	b.shows("SMTAlignment")

	b.open("/pending")
	b.click("中文")
	b.shows("根本原因")
	b.picture("pending-zh")
	b.click("EN")
	b.key("t")
	b.key("t")
	b.do("wait for dark colours", chromedp.Poll[chromedp.Void](`document.documentElement.dataset.theme === "dark"`))

	// Without its server a page says how old its data are, and goes on when there is one again.
	b.mu.Lock()
	b.mayFail = true
	b.mu.Unlock()
	stop()
	b.shows("disconnected, data from")
	b.picture("disconnected")
	again, _ := startConsole(t, "--kubeconfig", kubeconfig, "--listen", strings.TrimPrefix(b.origin, "http://"))
	b.shows("the token is missing or wrong")
	if !run(b, "look for colours", chromedp.Evaluate[bool](`!!document.querySelector("main > .stale")`)) {
		t.Error("data of a console that has ended are in full colour")
	}
	b.do("open the new address", chromedp.Navigate(again))
	b.shows("● live")
	b.checkFaults()
	signIn(t, kubeconfig)
}

package console

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// fakeServer serves the pages with fixed answers, and counts what tabs ask.
type fakeServer struct {
	answers map[string]any // by topic; noAnswer is an error

	mu        sync.Mutex // guards the fields below
	open      int        // streams that are open now
	tokens    map[string]bool
	questions int
	question  string // the last one
	refuse    bool   // tokens are no longer valid
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	files := os.DirFS("../../web/dist")
	switch r.URL.Path {
	case "/api/v1/stream":
		s.stream(w, r)
	case "/api/v1/whatif":
		question, _ := io.ReadAll(r.Body) // the page may have left
		s.mu.Lock()
		s.questions++
		s.question = string(question)
		s.mu.Unlock()
		var asked struct{ Ask struct{ Nodes []string } }
		_ = json.Unmarshal(question, &asked) // a page asks about some node, or about none
		node := append(asked.Ask.Nodes, "n-whatif-1")[0]
		const answer = `{"placements":[{"pod":"default/p","node":%q}],"unschedulable":[],"victims":[]}`
		fmt.Fprintf(w, answer, node)
	default:
		name := strings.TrimPrefix(r.URL.Path, "/")
		if _, err := fs.Stat(files, name); name == "" || err != nil {
			name = "index.html"
		}
		http.ServeFileFS(w, r, files, name)
	}
}

func (s *fakeServer) stream(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse := s.refuse
	s.open, s.tokens[r.Header.Get("Authorization")] = s.open+1, true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	if refuse {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"message":"the token is missing or wrong"}`)
		return
	}
	// As the console does, it sends an answer once, and then that nothing has changed.
	for topics := r.URL.Query()["topic"]; r.Context().Err() == nil && !refuse; topics = nil {
		for _, topic := range topics {
			message := map[string]any{"topic": topic, "read": time.Now(), "answer": s.answers[topic]}
			if why, isError := s.answers[topic].(noAnswer); isError {
				message = map[string]any{"topic": topic, "read": time.Now(), "error": why}
			}
			text, _ := json.Marshal(message) // of maps and strings
			fmt.Fprintf(w, "event: update\ndata: %s\n\n", text)
		}
		fmt.Fprintf(w, "event: read\ndata: {\"read\":%q}\n\n", time.Now().Format(time.RFC3339))
		_ = http.NewResponseController(w).Flush() // the page may have left
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
		s.mu.Lock()
		refuse = s.refuse
		s.mu.Unlock()
	}
}

// counts returns how many streams are open, and how many questions were asked.
func (s *fakeServer) counts() (open, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.questions
}

func (s *fakeServer) hasShown(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens["Bearer "+token]
}

func list(items ...any) map[string]any { return map[string]any{"items": append([]any{}, items...)} }

func newFakeServer(t *testing.T, answers map[string]any) (s *fakeServer, address string) {
	t.Helper()
	s = &fakeServer{answers: answers, tokens: map[string]bool{}}
	for _, topic := range []string{"pending", "nodes", "gpus", "quotas", "gangs", "evicted", "decisions", "use"} {
		if s.answers[topic] == nil {
			s.answers[topic] = list()
		}
	}
	if s.answers["status"] == nil {
		s.answers["status"] = noAnswer("not asked")
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return s, server.URL
}

// load is a node of 32 CPUs; findings are pairs of a cause and a text, and all but taint close it.
func load(name string, findings ...string) map[string]any {
	n := map[string]any{
		"node": name, "allocatable": "32", "requested": "8", "pods": 2, "lse": 0, "lsr": 8, "kubelet": 0, "ls": "0",
		"be": "0", "sharedPool": 24, "free": 24, "largestFit": 24, "largestOnOneNUMANode": 16, "fragmentedPercent": 0,
	}
	if len(findings) == 0 {
		return n
	}
	var all []any
	for i := 0; i < len(findings); i += 2 {
		all = append(all, map[string]any{"cause": findings[i], "text": findings[i+1]})
	}
	health := map[string]any{"findings": all}
	if n["health"] = health; findings[0] != "taint" {
		health["closed"], n["stranded"] = findings[0], "24"
	}
	return n
}

func TestAHiddenTabFollowsNothing(t *testing.T) {
	s, address := newFakeServer(t, map[string]any{"nodes": list(load("a"))})
	b := newBrowser(t, address)
	b.open("/fleet#t=secret")
	b.shows("● live", "1 of 1 nodes")
	if at := b.at(); strings.Contains(at, "secret") || !s.hasShown("secret") {
		t.Errorf("the address is %s, or the token was not shown", at)
	}
	b.turn("hidden")
	open := func(want int) func() bool {
		return func() bool {
			n, _ := s.counts()
			return n == want
		}
	}
	s.until(t, "no stream is open for a hidden tab", open(0))
	b.turn("visible")
	s.until(t, "one stream is open for a visible tab", open(1))
	b.checkFaults()
}

// TestTwelveTabsShareAStream: all are live, and the server has one stream. Browsers open six connections to a server.
func TestTwelveTabsShareAStream(t *testing.T) {
	s, address := newFakeServer(t, map[string]any{"nodes": list(load("a"))})
	b := newBrowser(t, address)
	b.open("/fleet#t=secret")
	b.shows("1 of 1 nodes")
	// Frames are to the worker what tabs are, and the browser keeps drawing them.
	const open = `for (let i = 0; i < 11; i++) {
		document.body.append(Object.assign(document.createElement("iframe"), {src: "/fleet"}));
	}`
	const live = `[...document.querySelectorAll("iframe")].filter((f) => /● live.*1 of 1 nodes/s.test(
		f.contentDocument?.body?.innerText)).length === 11`
	b.do("open more", chromedp.Evaluate[chromedp.Void](open+"undefined"),
		chromedp.Poll[chromedp.Void](live, chromedp.WithPollingTimeout(patience)))
	s.until(t, "one stream is open for twelve tabs", func() bool {
		n, _ := s.counts()
		return n == 1
	})
	b.checkFaults()
}

// TestANewTabHasTheSession of those that are open, as Ctrl-click opens it: without a token in its address.
func TestANewTabHasTheSession(t *testing.T) {
	s, address := newFakeServer(t, map[string]any{"nodes": list(load("a"))})
	b := newBrowser(t, address)
	b.open("/fleet#t=secret")
	b.shows("1 of 1 nodes")
	tab := b.tab()
	tab.open("/fleet")
	tab.shows("● live", "1 of 1 nodes")
	if s.hasShown("") {
		t.Error("a new tab asked without the token")
	}
	for _, tab := range []*browser{b, tab} {
		tab.checkFaults()
	}
}

// turn makes a tab visible or hidden for its page.
func (b *browser) turn(state string) {
	b.t.Helper()
	const script = `Object.defineProperty(document, "visibilityState", {value: %q, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange", {bubbles: true})), undefined`
	b.do("turn the tab "+state, chromedp.Evaluate[chromedp.Void](fmt.Sprintf(script, state)))
}

// until waits for a state of the pages.
func (s *fakeServer) until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience / 3); !holds(); {
		if time.Now().After(end) {
			open, _ := s.counts()
			t.Fatalf("not reached: %s; %d streams are open", what, open)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestHealthIsOnEachNode(t *testing.T) {
	node := map[string]any{
		"node": "gone", "sockets": []any{}, "pods": []any{}, "problems": []any{}, "policies": map[string]any{},
		"mode":   map[string]any{"mode": "Own", "from": map[string]any{"source": "assumed"}},
		"health": load("gone", "notReady", "NotReady", "cordon", "cordoned")["health"],
		"kubelet": map[string]any{
			"cpuManager": map[string]any{}, "memoryManager": map[string]any{}, "topologyManager": map[string]any{},
		},
	}
	_, address := newFakeServer(t, map[string]any{
		"nodes": list(load("fine"), load("gone", "notReady", "NotReady", "cordon", "cordoned"),
			load("mute", "agent", "agent silent"), load("kept", "taint", "gpu:NoSchedule")),
		"node/gone": node,
	})
	b := newBrowser(t, address)
	for path, texts := range map[string][]string{
		"/fleet":     {"▲ NotReady", "■ cordoned", "◐ agent silent", "◐ gpu:NoSchedule"},
		"/node/gone": {"▲ NotReady", "■ cordoned", "New pods cannot use what is free here"},
		"/": {
			"New pods can use 2 of 4 nodes", "24 CPUs are stranded on nodes: 1", "1 NotReady", "1 cordoned",
			"1 agents down",
		},
	} {
		b.open(path)
		b.shows(texts...)
		b.checkAccess()
	}
	b.checkFaults()
}

func TestListsSayWhatTheyLeaveOut(t *testing.T) {
	var causes, quotas, gangs []any
	for i := range 15 {
		causes = append(causes, map[string]any{
			"rootCause": fmt.Sprint("Cause", i), "class": "Capacity", "count": 10 - i%10, "pods": []any{},
			"example": "a/b",
		})
	}
	for i := range 231 {
		name := fmt.Sprint("q", i)
		quotas = append(quotas, map[string]any{
			"name": name, "parentName": "root", "max": map[string]string{"cpu": "9"},
			"borrowed": map[string]string{"cpu": "1"}, "used": map[string]string{"cpu": "3"},
			"min": map[string]string{"cpu": "2"}, "runtime": map[string]string{"cpu": "3"},
			"lent": map[string]string{}, "request": map[string]string{"cpu": "3"},
		})
		gangs = append(gangs, map[string]any{
			"name": "a/" + name, "state": "Bound", "children": []any{}, "boundChildren": []any{},
			"waitingForBindChildren": []any{}, "pendingChildren": []any{}, "createTime": "2026-01-02T03:04:05Z",
		})
	}
	_, address := newFakeServer(t, map[string]any{
		"pending": list(causes...), "quotas": list(quotas...), "gangs": list(gangs...),
	})
	b := newBrowser(t, address)
	b.open("/")
	b.shows("95 pods wait", "3 more causes", "and 225 more")
	const count = `[...document.querySelectorAll(".causelist > a > .count")]` +
		`.reduce((n, e) => n + Number(e.innerText), 0)`
	if n := run(b, "add up", chromedp.Evaluate[int](count)); n != 95 {
		t.Errorf("the rows sum to %d pods, the title says 95", n)
	}
	for path, rows := range map[string]string{"/gangs": ".ganglist > li[data-row]", "/quota": ".tree > li:not(.more)"} {
		b.open(path)
		b.shows("and 31 more")
		if n := run(b, "count rows", chromedp.Evaluate[int](`document.querySelectorAll("`+rows+`").length`)); n != 200 {
			t.Errorf("%s draws %d rows", path, n)
		}
	}
	b.checkFaults()
}

func TestAddressesThatNameNothing(t *testing.T) {
	_, address := newFakeServer(t, map[string]any{
		"gangs/team": list(), "pending/nope": noAnswer(`namespace "nope" not found`),
	})
	b := newBrowser(t, address)
	for path, text := range map[string]string{
		"/constructor":                 "This page does not exist",
		"/fleet?by=constructor":        "CPUs requested",
		`/whatif?q={"changes":5}`:      "changes must be a list of objects",
		`/whatif?q={"changes":[5]}`:    "changes must be a list of objects",
		`/whatif?q={"ask":{"pods":1}}`: "ask.pods must be a list of names",
		"/whatif?q=[":                  "The address has no valid question",
		"/decisions?pod=x":             `"x" is not the name of a pod: use NAMESPACE/NAME`,
		"/decisions?namespace=nope":    `namespace "nope" not found`,
		"/gangs/x":                     `"x" is not the name of a gang: use NAMESPACE/NAME`,
		"/gangs/team/x":                "Gang team/x does not exist",
		"/gangs?namespace=team":        "tenon gang -n team",
	} {
		b.open(path)
		b.shows(text)
		shown := run(b, "read", chromedp.Evaluate[string]("document.body.innerText"))
		if strings.Contains(shown, "undefined") {
			t.Errorf("%s shows something undefined:\n%s", path, shown)
		}
	}
	b.checkFaults()
}

// TestOldDataLoseColour when the token is no longer accepted.
func TestOldDataLoseColour(t *testing.T) {
	s, address := newFakeServer(t, map[string]any{"nodes": list(load("a"))})
	b := newBrowser(t, address)
	b.mayFail = true // the browser logs the refusal
	b.open("/fleet")
	b.shows("● live", "1 of 1 nodes")
	const stale = `!!document.querySelector("main .stale .tile")`
	if run(b, "look", chromedp.Evaluate[bool](stale)) {
		t.Error("live data have no colour")
	}
	s.mu.Lock()
	s.refuse = true
	s.mu.Unlock()
	b.shows("not signed in, data from", " ago", "the token is missing or wrong")
	b.do("wait until the colours are gone", chromedp.Poll[chromedp.Void](stale, chromedp.WithPollingTimeout(patience)))
	b.checkAccess()
	b.checkFaults()
}

// TestAnswersAreWhereTheReaderLooks: beside the list in a wide window, below its row in a narrow one.
func TestAnswersAreWhereTheReaderLooks(t *testing.T) {
	group := func(cause, pod string) any {
		return map[string]any{
			"rootCause": cause, "class": "Capacity", "count": 1, "pods": []string{pod}, "example": pod, "message": "no",
		}
	}
	_, address := newFakeServer(t, map[string]any{
		"pending": list(group("A", "default/a"), group("B", "default/p"), group("C", "default/c")),
		"pod/default/p": map[string]any{
			"pod": "default/p", "state": "Pending", "asked": "8 CPU", "nodes": 1, "data": map[string]any{"source": "s"},
		},
		"decisions": list(map[string]any{
			"pod": "default/p", "time": time.Now(), "node": "n", "feasible": 1, "of": 1, "scores": nil,
		}),
	})
	b := newBrowser(t, address)
	const beside = `(() => {
		const answer = document.querySelector(".detail").getBoundingClientRect();
		const list = document.querySelector("ul.causes, ol.timeline").getBoundingClientRect();
		return answer.left >= list.right && answer.top < innerHeight;
	})()`
	const below = `!!document.querySelector("li .detail")`
	for path, text := range map[string]string{
		"/pending?cause=B&pod=default/p": "8 CPU", "/decisions?pod=default/p": "No node was scored",
	} {
		for width, check := range map[int64]string{1440: beside, 800: below} {
			b.size(width, 900)
			b.open(path)
			b.shows(text)
			if !run(b, "look", chromedp.Evaluate[bool](check)) {
				t.Errorf("%s, %d pixels wide: the answer is in the wrong place", path, width)
			}
			b.checkAccess()
		}
	}
	b.checkFaults()
}

func TestTryAsksAtOnce(t *testing.T) {
	s, address := newFakeServer(t, map[string]any{})
	b := newBrowser(t, address)
	const patch = `{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"4"}}}]}}`
	b.open(`/whatif?asked=yes&q={"changes":[{"patchPod":{"name":"default/p","patch":` + patch +
		`}}],"ask":{"pods":["default/p"]}}`)
	b.shows("would be placed", "Change pod default/p: "+
		"spec.containers[main].resources.requests.cpu = 4")
	if _, questions := s.counts(); questions != 1 {
		t.Errorf("the page asked %d times, want once", questions)
	}
	b.open(`/whatif?q={"ask":{"pods":["default/p"]}}`)
	b.shows("Ask the scheduler")
	if _, questions := s.counts(); questions != 1 {
		t.Errorf("the page asked %d times in all, want once", questions)
	}
	b.click("Ask the scheduler")
	b.shows("would be placed")
	if at := b.at(); !strings.Contains(at, "asked=yes") {
		t.Errorf("the address %s does not restore the answer", at)
	}
	b.checkFaults()
}

// TestLendersAndBorrowersAddUp: what no quota's min contains is lent too.
func TestLendersAndBorrowersAddUp(t *testing.T) {
	quota := func(name, lent, borrowed string) any {
		cpu := func(n string) map[string]string { return map[string]string{"cpu": n} }
		return map[string]any{
			"name": name, "parentName": "teams", "max": cpu("100m"), "min": cpu("10m"), "runtime": cpu("10m"),
			"used": cpu("0"), "request": cpu("0"), "sharedWeight": cpu("1"), "lent": cpu(lent),
			"borrowed": cpu(borrowed),
			"trace": map[string]any{"cpu": map[string]any{
				"total": 100, "limited": 10, "base": 10, "pool": 45, "rounds": []any{},
			}},
		}
	}
	_, address := newFakeServer(t, map[string]any{
		"quotas": list(quota("a", "5m", "0"), quota("b", "0", "20m"), quota("c", "0", "25m")),
	})
	b := newBrowser(t, address)
	b.open("/quota?resource=cpu")
	b.shows("Who lends and who borrows")
	const texts = `[...document.querySelectorAll("svg.lending text")].map((e) => e.textContent).join("; ")`
	const want = "a −5m; not guaranteed ; −40m; c ; +25m; b ; +20m"
	if got := run(b, "read", chromedp.Evaluate[string](texts)); got != want {
		t.Errorf("the picture says %q, want %q", got, want)
	}
	b.checkFaults()
}

package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// fleet is the list of 1,000 nodes with 256 CPUs each that the page of the fleet draws; turn changes some of it.
func fleet(turn int) map[string]any {
	var items []map[string]any
	for i := range 1000 {
		used := (i*37 + turn*(i%7)) % 257
		items = append(items, map[string]any{
			"node": fmt.Sprintf("node-%04d", i), "allocatable": "256", "requested": fmt.Sprint(used), "pods": used / 4,
			"lse": used / 4, "lsr": used / 4, "kubelet": 0, "ls": fmt.Sprint(used / 2), "be": "0",
			"sharedPool": 256 - used/2,
			"free":       256 - used, "largestFit": 256 - used, "largestOnOneNUMANode": min(32, 256-used),
			"fragmentedPercent": 25 * (i % 4), "gangs": map[string]int{fmt.Sprintf("ml/train-%d", i%3): 2},
			"quotas": map[string]string{
				fmt.Sprintf("team-%d", i%9): fmt.Sprint(i % 5), fmt.Sprintf("team-%d", (i+turn)%7): "2500m",
			},
		})
	}
	return map[string]any{"items": items}
}

// noAnswer is why a topic has no answer.
type noAnswer string

// serve serves the pages with a stream that changes twice a second, as far as a cluster is not needed for it.
func serve(t *testing.T, answers func(turn int) map[string]any) string {
	t.Helper()
	files := os.DirFS("../../web/dist")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/stream" {
			name := strings.TrimPrefix(r.URL.Path, "/")
			if _, err := fs.Stat(files, name); name == "" || err != nil {
				name = "index.html"
			}
			http.ServeFileFS(w, r, files, name)
			return
		}
		for turn := 0; r.Context().Err() == nil; turn++ {
			for topic, answer := range answers(turn) {
				message := map[string]any{"topic": topic, "read": time.Now(), "answer": answer}
				if why, isError := answer.(noAnswer); isError {
					delete(message, "answer")
					message["error"] = why
				}
				text, err := json.Marshal(message)
				if err != nil {
					t.Error(err)
				}
				fmt.Fprintf(w, "event: update\ndata: %s\n\n", text)
			}
			fmt.Fprintf(w, "event: read\ndata: {\"read\":%q}\n\n", time.Now().Format(time.RFC3339))
			_ = http.NewResponseController(w).Flush() // the page may have left
			select {
			case <-r.Context().Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestFramesOfAThousandNodes measures frames while the fleet is scrolled, pointed at, filtered and coloured anew, and
// prints them. The budget of a frame is 16.7 ms in the middle and 33 ms at 95 %. docs/reference/performance.md has a
// run.
func TestFramesOfAThousandNodes(t *testing.T) {
	address := serve(t, func(turn int) map[string]any {
		return map[string]any{"nodes": fleet(turn), "gpus": map[string]any{"items": []any{}}}
	})
	b := newBrowser(t, address)
	b.do("open the fleet", chromedp.Navigate(address+"/fleet"))
	b.shows("1000 of 1000 nodes")
	for _, step := range []struct{ name, script string }{
		{"at rest", ""},
		{"scrolled", "scrollBy(0, n % 200 < 100 ? 60 : -60)"},
		{"pointed at, another node each frame", `{
			const c = document.querySelector(".map canvas"), box = c.getBoundingClientRect();
			c.dispatchEvent(new MouseEvent("mousemove", {bubbles: true,
				clientX: box.left + (n * 37) % box.width, clientY: box.top + (n * 11) % box.height}));
		}`},
		{"filtered, each 10th frame", `if (n % 10 == 0) {
			const i = document.querySelector("input"); i.value = "node-0" + (n / 10 % 2 ? "1" : "");
			i.dispatchEvent(new Event("input", {bubbles: true})) }`},
		{"coloured anew, each 10th frame", `if (n % 10 == 0) {
			const s = document.querySelector("select"); s.value = n / 10 % 2 ? "exclusive" : "requested";
			s.dispatchEvent(new Event("change", {bubbles: true})) }`},
		{"coloured by quota or gang, each 10th frame", `if (n % 10 == 0) {
			const s = document.querySelector("select"); s.value = n / 10 % 2 ? "quota" : "gang";
			s.dispatchEvent(new Event("change", {bubbles: true})) }`},
	} {
		times := run(b, step.name, chromedp.Evaluate[[]float64](`new Promise((done) => {
			const times = [];
			let last = performance.now(), n = 0;
			const end = last + 4000;
			const next = (now) => {
				times.push(now - last); last = now; n++;
				if (now > end) { done(times) } else { `+step.script+`
				requestAnimationFrame(next) }
			};
			requestAnimationFrame(next);
		})`, chromedp.EvalAwaitPromise))
		slices.Sort(times)
		at := func(part float64) float64 { return times[int(part*float64(len(times)-1))] }
		t.Logf("%s: %d frames in 4 s, %.1f ms in the middle, %.1f ms at 95 %%, %.1f ms the longest",
			step.name, len(times), at(0.5), at(0.95), at(1))
		if at(0.5) > generous*16.7 || at(0.95) > generous*33 {
			t.Errorf("%s: a frame takes more than %d times its budget", step.name, generous)
		}
	}
	b.checkFaults()
}

// TestTenThousandPodsAndNamesWithMarkup: a page lists some of many pods, and names are text whatever they contain.
func TestTenThousandPodsAndNamesWithMarkup(t *testing.T) {
	const markup = `<img src=x onerror="alert(1)">`
	pods := []string{"default/" + markup}
	for i := range 9999 {
		pods = append(pods, fmt.Sprintf("default/p-%05d", i))
	}
	address := serve(t, func(int) map[string]any {
		return map[string]any{"pending": map[string]any{"items": []any{map[string]any{
			"rootCause": "InsufficientCPU", "class": "capacity", "count": len(pods), "pods": pods, "oldest": time.Now(),
			"example": pods[0], "message": "<script>alert(1)</script>" + markup,
		}}}}
	})
	b := newBrowser(t, address)
	query := url.Values{"cause": {"InsufficientCPU"}, "pod": {pods[1]}}
	b.do("open what waits", chromedp.Navigate(address+"/pending?"+query.Encode()))
	b.shows("10000", "and 9799 more", markup, "<script>alert(1)</script>")
	const elements = "document.querySelectorAll('main img, main script').length"
	if n := run(b, "look for markup", chromedp.Evaluate[int](elements)); n > 0 {
		t.Errorf("%d elements come from names", n)
	}
	b.checkFaults()
}

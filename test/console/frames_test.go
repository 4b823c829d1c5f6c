package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
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
		})
	}
	return map[string]any{"items": items}
}

// serveFleet serves the pages with a stream that changes twice a second, as far as a cluster is not needed for it.
func serveFleet(t *testing.T) string {
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
			for topic, answer := range map[string]any{"nodes": fleet(turn), "gpus": map[string]any{"items": []any{}}} {
				text, err := json.Marshal(map[string]any{"topic": topic, "read": time.Now(), "answer": answer})
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

// TestFramesOfAThousandNodes measures frames while the fleet is scrolled, filtered and coloured anew, and prints them.
// How long one takes depends on the machine, so nothing is expected of it; docs/reference/performance.md has a run.
func TestFramesOfAThousandNodes(t *testing.T) {
	address := serveFleet(t)
	b := newBrowser(t, address)
	b.do("open the fleet", chromedp.Navigate(address+"/fleet"))
	b.shows("1000 of 1000 nodes", "node-0999")
	for _, step := range []struct{ name, script string }{
		{"at rest", ""},
		{"scrolled", "scrollBy(0, n % 200 < 100 ? 60 : -60)"},
		{"filtered, each 10th frame", `if (n % 10 == 0) {
			const i = document.querySelector("input"); i.value = "node-0" + (n / 10 % 2 ? "1" : "");
			i.dispatchEvent(new Event("input", {bubbles: true})) }`},
		{"coloured anew, each 10th frame", `if (n % 10 == 0) {
			const s = document.querySelector("select"); s.value = n / 10 % 2 ? "exclusive" : "requested";
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
	}
	b.checkFaults()
}

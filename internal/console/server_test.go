package console_test

import (
	"bufio"
	"bytes"
	or "cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/console"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/web"
)

const token = "the-token"

// source answers from functions.
type source struct {
	read   func(topic string) (console.Answer, error)
	whatIf func(question []byte) ([]byte, error)
}

func (s source) Read(_ context.Context, topic string) (console.Answer, error) { return s.read(topic) }

func (s source) WhatIf(_ context.Context, question []byte) ([]byte, error) { return s.whatIf(question) }

var fixed = source{
	read: func(topic string) (console.Answer, error) {
		return console.Answer{JSON: fmt.Appendf(nil, `{"topic":%q}`, topic), Content: topic}, nil
	},
	whatIf: func(question []byte) ([]byte, error) { return question, nil },
}

// serve starts a console whose token is valid so long, and returns its address.
func serve(t *testing.T, s console.Source, valid time.Duration) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	number, err := strconv.Atoi(port)
	testkit.Check(t, err)
	server.Config.Handler = console.New(console.Options{
		SignIn: console.OneToken(s, token, time.Now().Add(valid)), Files: web.Files(), Port: number,
		Every: time.Millisecond,
	})
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// request returns a request as a page of the console sends it.
func request(t *testing.T, method, address, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	testkit.Check(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+r.Host)
	}
	return r
}

func do(t *testing.T, r *http.Request) (status int, text string, header http.Header) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	testkit.Check(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	testkit.Check(t, err)
	return response.StatusCode, string(body), response.Header
}

func TestWhoMayNotAskIsRefused(t *testing.T) {
	t.Parallel()
	const stream, whatIf = "/api/v1/stream?topic=a", "/api/v1/whatif"
	for name, test := range map[string]struct {
		method, path string
		change       func(*http.Request)
		status       int
		text         string
	}{
		"a name that another site points to this machine": {
			path:   "/",
			change: func(r *http.Request) { _, port, _ := strings.Cut(r.Host, ":"); r.Host = "evil.example:" + port },
			status: 403, text: "is not allowed: use 127.0.0.1:",
		},
		"another port": {
			path: stream, change: func(r *http.Request) { r.Host = "127.0.0.1:1" }, status: 403, text: "is not allowed",
		},
		"a host without a port": {
			path: stream, change: func(r *http.Request) { r.Host = "localhost" }, status: 403, text: "is not allowed",
		},
		"an address of another machine": {
			path:   stream,
			change: func(r *http.Request) { _, port, _ := strings.Cut(r.Host, ":"); r.Host = "192.0.2.1:" + port },
			status: 403, text: "is not allowed",
		},
		"a page of another origin": {
			path: stream, change: func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") },
			status: 403, text: "https://evil.example",
		},
		"a page of the same host over TLS": {
			path:   stream,
			change: func(r *http.Request) { r.Header.Set("Origin", "https://"+r.Host) },
			status: 403, text: "origin",
		},
		"a question without an origin": {
			method: http.MethodPost, path: whatIf,
			change: func(r *http.Request) { r.Header.Del("Origin") },
			status: 403,
			text:   "only pages of the console may ask",
		},
		"a question of a page without an origin of its own": {
			method: http.MethodPost, path: whatIf,
			change: func(r *http.Request) { r.Header.Set("Origin", "null") },
			status: 403,
			text:   "null",
		},
		"no token": {
			path:   stream,
			change: func(r *http.Request) { r.Header.Del("Authorization") },
			status: 401, text: "missing or wrong",
		},
		"another token": {
			path:   stream,
			change: func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") },
			status: 401,
			text:   "missing or wrong",
		},
		"a token in the query": {
			path:   stream + "&token=" + token,
			change: func(r *http.Request) { r.Header.Del("Authorization") },
			status: 401,
			text:   "missing or wrong",
		},
		"a token without its scheme": {
			path:   stream,
			change: func(r *http.Request) { r.Header.Set("Authorization", token) },
			status: 401, text: "missing or wrong",
		},
		"a question without a token": {
			method: http.MethodPost, path: whatIf,
			change: func(r *http.Request) { r.Header.Del("Authorization") },
			status: 401,
			text:   "missing or wrong",
		},
		"no topic":                {path: "/api/v1/stream", status: 400, text: "use 1 to 64 times topic=TOPIC"},
		"too many topics":         {path: stream + strings.Repeat("&topic=b", 64), status: 400, text: "65 topics"},
		"a path that is none":     {path: "/api/v1/pods", status: 404, text: "GET /api/v1/pods does not exist"},
		"a question that is read": {path: whatIf, status: 404, text: "does not exist"},
		"a stream that is posted": {method: http.MethodPost, path: stream, status: 404, text: "does not exist"},
		"a page that is deleted":  {method: http.MethodDelete, path: "/", status: 405},
		"a question of over 1 MiB": {
			method: http.MethodPost, path: whatIf, change: body(1<<20 + 1), status: 413, text: "too large",
		},
		"a question of exactly that": {method: http.MethodPost, path: whatIf, change: body(1 << 20), status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := request(t, or.Or(test.method, http.MethodGet), serve(t, fixed, time.Hour)+test.path, "{}")
			if test.change != nil {
				test.change(r)
			}
			status, text, _ := do(t, r)
			if status != test.status || !strings.Contains(text, test.text) {
				t.Errorf("got %d %.200q, want %d with %q", status, text, test.status, test.text)
			}
		})
	}
	t.Run("an expired token", func(t *testing.T) {
		t.Parallel()
		for method, path := range map[string]string{http.MethodGet: stream, http.MethodPost: whatIf} {
			status, text, _ := do(t, request(t, method, serve(t, fixed, 0)+path, "{}"))
			if status != 401 || !strings.Contains(text, "has expired: run tenon console") {
				t.Errorf("%s %s: got %d %q", method, path, status, text)
			}
		}
	})
}

func body(n int) func(*http.Request) {
	return func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", n))), int64(n)
	}
}

// A page may load what the server has, and nothing else: each answer says so.
func TestEachAnswerHasThePolicy(t *testing.T) {
	t.Parallel()
	address := serve(t, fixed, time.Hour)
	for _, p := range []string{"/", "/node/a%2Fb", "/pending?cause=<script>", "/../../etc/passwd", "/api/v1/none"} {
		_, text, header := do(t, request(t, http.MethodGet, address+p, ""))
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{
			"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'",
		} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %q", p, policy, want)
			}
		}
		for _, never := range []string{"unsafe", "http:", "data:", "*"} {
			if strings.Contains(policy, never) {
				t.Errorf("%s: the policy %q has %q", p, policy, never)
			}
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: headers are %v", p, header)
		}
		if strings.Contains(text, "<script>") {
			t.Errorf("%s is repeated in the answer", p)
		}
	}
}

// event is an event of a stream.
type event struct {
	name string
	data string
}

// events opens a stream and returns a function that returns its next event; io.EOF ends it.
func events(t *testing.T, address string, topics ...string) func() (event, error) {
	t.Helper()
	query := url.Values{"topic": topics}.Encode()
	response, err := http.DefaultClient.Do(request(t, http.MethodGet, address+"/api/v1/stream?"+query, ""))
	testkit.Check(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	lines := bufio.NewReader(response.Body)
	return func() (e event, err error) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil || line == "\n" {
				return e, err
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			if name == "event" {
				e.name = value
			} else {
				e.data += value
			}
		}
	}
}

func TestAStreamSendsWhatChanges(t *testing.T) {
	t.Parallel()
	reads := map[string]int{} // by the stream's goroutine alone
	address := serve(t, source{read: func(topic string) (console.Answer, error) {
		reads[topic]++
		switch n := reads[topic]; {
		case topic == "lost" && n == 2:
			return console.Answer{}, fmt.Errorf("connection refused")
		case topic == "lost" && n > 2:
			return console.Answer{JSON: []byte(`"back"`), Content: "back", Notes: []string{"a note"}}, nil
		default:
			// The age is new each time, the content is not.
			return console.Answer{JSON: fmt.Appendf(nil, `{"age":%d}`, n), Content: "same"}, nil
		}
	}}, time.Hour)
	next := events(t, address, "same", "lost")
	var got []string
	for rounds := 0; rounds < 4; {
		e, err := next()
		testkit.Check(t, err)
		if e.name == "read" {
			rounds++
			continue
		}
		var u struct {
			Topic, Error string
			Answer       json.RawMessage
			Notes        []string
		}
		testkit.Check(t, json.Unmarshal([]byte(e.data), &u))
		got = append(got, fmt.Sprintf("%s %s%s %v", u.Topic, u.Answer, u.Error, u.Notes))
	}
	want := []string{
		`same {"age":1} []`, `lost {"age":1} []`, "lost connection refused []", `lost "back" [a note]`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

// TestAStreamKeepsWhatIsExpensive: a topic whose answer says so is not read in each round.
func TestAStreamKeepsWhatIsExpensive(t *testing.T) {
	t.Parallel()
	reads := map[string]int{} // by the stream's goroutine alone
	address := serve(t, source{read: func(topic string) (console.Answer, error) {
		reads[topic]++
		keep := time.Duration(0)
		if topic == "kept" {
			keep = time.Hour
		}
		n := reads[topic]
		return console.Answer{JSON: fmt.Appendf(nil, "%d", n), Content: fmt.Sprint(n), Keep: keep}, nil
	}}, time.Hour)
	next := events(t, address, "kept", "read")
	got := map[string]int{}
	for rounds := 0; rounds < 4; {
		e, err := next()
		testkit.Check(t, err)
		if e.name == "read" {
			rounds++
			continue
		}
		var u struct{ Topic string }
		testkit.Check(t, json.Unmarshal([]byte(e.data), &u))
		got[u.Topic]++
	}
	if want := map[string]int{"kept": 1, "read": 4}; !maps.Equal(got, want) {
		t.Errorf("in four rounds the updates are %v, want %v", got, want)
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel()
	next := events(t, serve(t, fixed, 200*time.Millisecond), "a")
	for {
		if _, err := next(); err != nil {
			return // a stream without an end fails by the time limit of the tests
		}
	}
}

func TestMoreStreamsThanAllowedAreRefused(t *testing.T) {
	t.Parallel()
	address := serve(t, fixed, time.Hour)
	for range 8 {
		_, err := events(t, address, "a")()
		testkit.Check(t, err)
	}
	status, text, _ := do(t, request(t, http.MethodGet, address+"/api/v1/stream?topic=a", ""))
	if status != 429 || !strings.Contains(text, "8 browsers follow the cluster") {
		t.Errorf("got %d %q", status, text)
	}
}

// Names are data: what the page gets is JSON in which nothing ends a line or a tag.
func TestNamesWithMarkupAreSentAsData(t *testing.T) {
	t.Parallel()
	name := "</script><img src=x onerror=alert(1)>\n\nevent: read\ndata: {}\n\n"
	text, err := json.Marshal(map[string]string{"pod": name})
	testkit.Check(t, err)
	address := serve(t, source{read: func(string) (console.Answer, error) {
		return console.Answer{JSON: text, Content: name, Notes: []string{name}}, nil
	}}, time.Hour)
	e, err := events(t, address, name)()
	testkit.Check(t, err)
	if e.name != "update" || strings.ContainsAny(e.data, "<>\n") {
		t.Fatalf("got %+v", e)
	}
	var u struct {
		Topic  string
		Answer struct{ Pod string }
		Notes  []string
	}
	testkit.Check(t, json.Unmarshal([]byte(e.data), &u))
	if u.Topic != name || u.Answer.Pod != name || u.Notes[0] != name {
		t.Errorf("got %+v, want the name as it is", u)
	}
}

func TestQuestionsAreAnsweredOrRefused(t *testing.T) {
	t.Parallel()
	address := serve(t, source{whatIf: func(question []byte) ([]byte, error) {
		switch string(question) {
		case "bad":
			return nil, &console.Refusal{Status: 400, Text: "no such <pod>"}
		case "down":
			return nil, fmt.Errorf("connection refused")
		}
		return []byte(`{"placements":[]}`), nil
	}}, time.Hour)
	for question, want := range map[string]string{
		"good": `200 {"placements":[]}`,
		"bad":  `400 {"message":"no such \u003cpod\u003e"}`,
		"down": `502 {"message":"connection refused"}`,
	} {
		status, text, _ := do(t, request(t, http.MethodPost, address+"/api/v1/whatif", question))
		if got := fmt.Sprintf("%d %s", status, strings.TrimSpace(text)); got != want {
			t.Errorf("%s: got %s, want %s", question, got, want)
		}
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"127.0.0.1:0": true, "localhost:8080": true, "[::1]:80": true, "127.0.0.2:1": true,
		"0.0.0.0:80": false, ":80": false, "192.0.2.1:80": false, "[::]:80": false, "example.com:80": false,
		"127.0.0.1": false,
		"":          false, "localhost.example.com:1": false,
	} {
		if err := console.CheckAddress(address); (err == nil) != allowed {
			t.Errorf("%q: got %v, want it allowed: %t", address, err, allowed)
		}
	}
}

func TestAConsoleIsServedUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	started, err := console.Start(ctx, "127.0.0.1:0", fixed)
	testkit.Check(t, err)
	address, fragment, _ := strings.Cut(started.Address, "/#t=")
	r := request(t, http.MethodGet, address+"/api/v1/stream?topic=a", "")
	r.Header.Set("Authorization", "Bearer "+fragment)
	response, err := http.DefaultClient.Do(r)
	testkit.Check(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || len(fragment) < 26 {
		t.Errorf("token %q: got %s", fragment, response.Status)
	}
	cancel()
	testkit.Check(t, started.Wait())
}

// maxSize is the limit of script and style sheet together, compressed.
const maxSize = 80_000

func TestThePagesAreSmallAndWhole(t *testing.T) {
	t.Parallel()
	var sent bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&sent, gzip.BestCompression)
	testkit.Check(t, err)
	address := serve(t, fixed, time.Hour)
	_, page, _ := do(t, request(t, http.MethodGet, address+"/", ""))
	scripts, err := fs.Glob(web.Files(), "app-*.js")
	testkit.Check(t, err)
	for _, name := range scripts { // they name the script of the shared worker
		_, script, _ := do(t, request(t, http.MethodGet, address+"/"+name, ""))
		page += script
	}
	testkit.Check(t, fs.WalkDir(web.Files(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == "index.html" {
			return err
		}
		if !strings.Contains(page, `"/`+name+`"`) {
			t.Errorf("neither index.html nor the script names %s", name)
		}
		_, text, header := do(t, request(t, http.MethodGet, address+"/"+name, ""))
		want := map[string]string{".js": "text/javascript", ".css": "text/css"}[path.Ext(name)]
		if !strings.HasPrefix(header.Get("Content-Type"), want+";") {
			t.Errorf("%s is served as %q", name, header.Get("Content-Type"))
		}
		_, err = io.WriteString(compressed, text)
		return err
	}))
	testkit.Check(t, compressed.Close())
	if sent.Len() > maxSize {
		t.Errorf("script and style sheet are %d bytes compressed, at most %d are allowed", sent.Len(), maxSize)
	}
}

// Browsers keep files whose names change with their content, and get all files compressed if they accept that.
func TestFilesAreCompressedAndKept(t *testing.T) {
	t.Parallel()
	address := serve(t, fixed, time.Hour)
	scripts, err := fs.Glob(web.Files(), "app-*.js")
	testkit.Check(t, err)
	for name, kept := range map[string]bool{"/": false, "/node/a": false, "/" + scripts[0]: true} {
		texts := map[string]string{}
		for _, encoding := range []string{"identity", "gzip", "gzip"} { // the second is from memory
			r := request(t, http.MethodGet, address+name, "")
			r.Header.Set("Accept-Encoding", encoding)
			_, text, header := do(t, r)
			if encoding == "gzip" {
				zipped, err := gzip.NewReader(strings.NewReader(text))
				testkit.Check(t, err)
				plain, err := io.ReadAll(zipped)
				testkit.Check(t, err)
				text = string(plain)
			}
			if got := header.Get("Content-Encoding") == "gzip"; got != (encoding == "gzip") {
				t.Errorf("%s, %s: headers are %v", name, encoding, header)
			}
			if got := strings.Contains(header.Get("Cache-Control"), "immutable"); got != kept {
				t.Errorf("%s: kept %t, want %t: %v", name, got, kept, header)
			}
			texts[encoding] = text
		}
		if texts["gzip"] != texts["identity"] || texts["gzip"] == "" {
			t.Errorf("%s: the compressed text differs", name)
		}
	}
}

// A console that other machines reach is asked by its names, over TLS, by who has signed in.
func TestAConsoleForOtherMachines(t *testing.T) {
	t.Parallel()
	signIn := func(_ context.Context, shown string) (console.Source, error) {
		if shown != token {
			return nil, &console.Refusal{Status: http.StatusUnauthorized, Text: "sign in"}
		}
		return fixed, nil
	}
	s := httptest.NewTLSServer(console.New(console.Options{
		SignIn: signIn, Files: web.Files(), Hosts: []string{"tenon.example", "2001:db8::1"}, Every: time.Millisecond,
	}))
	t.Cleanup(s.Close)
	const here, https, post = "tenon.example", "https://", http.MethodPost
	const stream, whatIf = "/api/v1/stream?topic=a", "/api/v1/whatif"
	for name, test := range map[string]struct {
		method, path, host, origin, token string
		status                            int
	}{
		"a page under its name":                {path: "/", host: here, status: 200},
		"on another port":                      {path: "/", host: here + ":8443", status: 200},
		"through kubectl port-forward":         {path: "/", host: "localhost:1234", status: 200},
		"an address as its name":               {path: "/", host: "[2001:db8::1]:443", status: 200},
		"a name that another site points here": {path: "/", host: "evil.example", status: 403},
		"a name that begins the same":          {path: "/", host: here + ".evil.example", status: 403},
		"an address that no one named":         {path: "/", host: "192.0.2.1", status: 403},
		"no token":                             {path: stream, host: here, status: 401},
		"another token":                        {path: stream, host: here, token: "x", status: 401},
		"a question without an origin":         {method: post, path: whatIf, host: here, token: token, status: 403},
		"another method":                       {method: "PUT", path: whatIf, host: here, token: token, status: 404},
		"a question of its page": {
			method: post, path: whatIf, host: here, origin: https + here, token: token, status: 200,
		},
		"a question of its page without TLS": {
			method: post, path: whatIf, host: here, origin: "http://" + here, token: token, status: 403,
		},
		"a question of a page of another origin": {
			method: post, path: whatIf, host: here, origin: https + "evil.example", token: token, status: 403,
		},
	} {
		method := or.Or(test.method, http.MethodGet)
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+test.path, strings.NewReader("{}"))
		testkit.Check(t, err)
		r.Host = test.host
		for key, value := range map[string]string{"Origin": test.origin, "Authorization": test.token} {
			if key == "Authorization" && value != "" {
				value = "Bearer " + value
			}
			if value != "" {
				r.Header.Set(key, value)
			}
		}
		response, err := s.Client().Do(r)
		testkit.Check(t, err)
		_ = response.Body.Close()
		if response.StatusCode != test.status {
			t.Errorf("%s: got %s, want %d", name, response.Status, test.status)
		}
	}
}

// A token that expires while a page is open ends its stream.
func TestAStreamAsksAgainWhoseTokenItIs(t *testing.T) {
	t.Parallel()
	asked := 0 // by the stream's goroutine alone
	s := httptest.NewServer(console.New(console.Options{
		SignIn: func(context.Context, string) (console.Source, error) {
			if asked++; asked > 3 {
				return nil, &console.Refusal{Status: http.StatusUnauthorized, Text: "expired"}
			}
			return fixed, nil
		},
		Files: web.Files(), Every: time.Millisecond,
	}))
	t.Cleanup(s.Close)
	next := events(t, s.URL, "a")
	rounds := 0
	for {
		e, err := next()
		if err != nil {
			break
		}
		if e.name == "read" {
			rounds++
		}
	}
	if rounds != 3 {
		t.Errorf("got %d rounds, want 3: one for each time that the token was taken", rounds)
	}
}

// Whoever has no token can make the console ask the API server about some tokens at a time, and no more.
func TestFewTokensAreLookedAtAtOnce(t *testing.T) {
	t.Parallel()
	const most, visitors = 16, 24
	var now, peak atomic.Int32
	entered, leave := make(chan bool, visitors), make(chan bool)
	s := httptest.NewServer(console.New(console.Options{
		SignIn: func(context.Context, string) (console.Source, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for last := peak.Load(); n > last && !peak.CompareAndSwap(last, n); last = peak.Load() {
			}
			entered <- true
			<-leave
			return nil, &console.Refusal{Status: http.StatusUnauthorized, Text: "wrong"}
		},
	}))
	t.Cleanup(s.Close)
	var all sync.WaitGroup
	for range visitors {
		r := request(t, http.MethodGet, s.URL+"/api/v1/stream?topic=a", "")
		all.Go(func() {
			response, err := http.DefaultClient.Do(r)
			if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusUnauthorized {
				t.Errorf("got %+v, %v", response, err)
			}
		})
	}
	for range most {
		<-entered
	}
	close(leave)
	all.Wait()
	if got := peak.Load(); got != most {
		t.Errorf("%d tokens were looked at at once, want %d", got, most)
	}
}
